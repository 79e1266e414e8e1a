"""Why no kernel answers a call of a layer, or a part of it, so that the torch code does."""

from enum import Enum


class Reason(Enum):
    """Each value is a sentence for the user. `choice` and the kernels return one instead of a result."""

    FORCED = "EQUIPOISE_BACKEND names another backend"
    VALIDATED = "validate=True checks every score of a prediction, and explains one that is wrong, in torch"
    TRACED = "the call is traced or transformed, or forward-mode derivatives are computed"
    WRAPPED = "unary is no plain tensor but a wrapper around others"
    DEVICE = "the scores are on another device"
    NOT_INSTALLED = "Triton is not installed"
    METHOD = "there are no kernels for this scaling method"
    POLICY = "invalid labels must be found (validate=True, or on_invalid), and these kernels do not look for them"
    UNSUPPORTED = "the kernels do not support these dtypes or sizes, or there is no C compiler (the log says so)"
    EXACT = "learned scaling in evaluation mode has exact derivatives, which the torch code computes"
    SETS = "labels are sets, soft or weighted by position"
    IN_PARTS = "no kernel computes all of this loss or prediction in one call"
    INVALID_LABEL = "a label is out of range or breaks the constraints"
    NOT_FINITE = "the loss is infinite or NaN, and the torch code explains it"
