"""Binary segmentation of horses (§6.1, "Binary Segmentation")."""

from .task import Horses, iou

__all__ = ["Horses", "iou"]
