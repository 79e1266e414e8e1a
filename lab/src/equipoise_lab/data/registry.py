"""Every data set: its publisher, its terms, its files, and their sizes and digests.

A digest is listed only if it was computed from the file, or if several independent projects record the same one. If the
digest of a publisher's archive is not known (`Source.sha256 is None`), each file in it is checked instead. Where a file
has no digest either, nothing is downloaded: the user must put the files into the data folder (`Source.verifiable`).
"""

import difflib
from importlib import resources

from .entries import Dataset, File, Source
from .errors import UnknownDatasetError

PACKED_OCR_SHA256 = "3f936eb61ec5aecd68d9f2ecfcada2f649143ee019da6b821da42b5dafa00c84"


def dataset(name: str) -> Dataset:
    """The data set of this name.

    >>> dataset("conll2000").page
    'https://www.clips.uantwerpen.be/conll2000/chunking/'
    >>> dataset("conl2000")
    Traceback (most recent call last):
    ...
    equipoise_lab.data.errors.UnknownDatasetError: unknown data set conl2000: did you mean conll2000?
    """
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the data sets are {', '.join(DATASETS)}"
    raise UnknownDatasetError(f"unknown data set {name}: {hint}")


def _horses() -> tuple[File, ...]:
    lines = resources.files(__package__).joinpath("horses.tsv").read_text(encoding="ascii").splitlines()
    rows = (line.split("\t") for line in lines[1:])  # path, bytes, sha256
    return tuple(
        File(path, f"horses/{path}", int(size), sha256, member=f"weizmann_horse_db/{path}")
        for path, size, sha256 in rows
    )


Part = tuple[str, str, int, str, int, str]
"""A part, its name at the publisher, size and digest there, size and digest of a copy by gzip -9."""


def _texts(folder: str, url: str, parts: tuple[Part, ...]) -> tuple[Source, ...]:
    """The parts as the publisher has them."""
    return tuple(
        Source(f"{url}/{name}", (File(part, f"{folder}/{name}", size, sha256),), size, sha256)
        for part, name, size, sha256, _, _ in parts
    )


def _copies(folder: str, parts: tuple[Part, ...]) -> tuple[File, ...]:
    """The same parts, compressed."""
    return tuple(
        File(part, f"{folder}/{part}.conll.gz", size, sha256, content) for part, _, _, content, size, sha256 in parts
    )


OCR = Dataset(
    name="ocr",
    title="handwritten words, letter by letter (inside the package)",
    page="http://ai.stanford.edu/~btaskar/ocr/",
    citation="B. Taskar, C. Guestrin, D. Koller: Max-Margin Markov Networks, NIPS 2003; words collected by R. Kassel: "
    "A Comparison of Approaches to On-line Handwritten Character Recognition, PhD thesis, MIT, 1995",
    terms="none stated",
    packaged=True,
    sources=(
        Source(
            "http://ai.stanford.edu/~btaskar/ocr/letter.data.gz",
            files=(
                File(
                    "letters",
                    "ocr/letter.data.gz",
                    1153549,
                    "7f91e5f1c5356a3795e6ffd8f2bd3d7366ea221c2553f1447dc46a295f68340b",
                    content_sha256="535363d0b7bc34246b1f8731719540f526b6807b12dda5d430d011d160bc7882",
                ),
            ),
        ),
    ),
)

CONLL2000 = Dataset(
    name="conll2000",
    title="text chunking: Wall Street Journal with part-of-speech and chunk tags",
    page="https://www.clips.uantwerpen.be/conll2000/chunking/",
    citation="E. F. Tjong Kim Sang, S. Buchholz: Introduction to the CoNLL-2000 Shared Task: Chunking, CoNLL 2000",
    terms="none known; the text is from the Penn Treebank (Linguistic Data Consortium)",
    sources=tuple(
        Source(
            f"https://www.clips.uantwerpen.be/conll2000/chunking/{part}.txt.gz",
            files=(File(part, f"conll2000/{part}.txt.gz", size, sha256, content),),
            size=size,
            sha256=sha256,
        )
        for part, size, sha256, content in (
            (
                "train",
                611540,
                "bcbbe17c487d0939d48c2d694622303edb3637ca9c4944776628cd1815c5cb34",
                "82033cd7a72b209923a98007793e8f9de3abc1c8b79d646c50648eb949b87cea",
            ),
            (
                "test",
                139551,
                "2695b931a505b65b1d3fe2a5aa0d749edcd53d786278da6d7726714e1426fbe8",
                "73b7b1e565fa75a1e22fe52ecdf41b6624d6f59dacb591d44252bf4d692b1628",
            ),
        )
    ),
)

WNUT17_PARTS: tuple[Part, ...] = (
    (
        "train",
        "wnut17train.conll",
        493781,
        "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
        179137,
        "73166ca232684f62c789af13efcbd7e2cc54937fd0e72a8ae53c3c7c2ac50c06",
    ),
    (
        "dev",
        "emerging.dev.conll",
        114749,
        "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
        37695,
        "290cb9e279496df9fe592e29e8af80acb5fc56991ae7087020c038a0ad946bac",
    ),
    (
        "test",
        "emerging.test.annotated",
        192425,
        "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0",
        64695,
        "c2a9d98dc76b035b78f287f6f8f479d20832622ab2fdc79d0b380131d4ff4351",
    ),
)

WNUT17 = Dataset(
    name="wnut17",
    title="named entities in noisy text: English social media with six kinds of entities",
    page="https://github.com/leondz/emerging_entities_17",
    citation="L. Derczynski, E. Nichols, M. van Erp, N. Limsopatham: Results of the WNUT2017 Shared Task on Novel and "
    "Emerging Entity Recognition, W-NUT at EMNLP 2017",
    terms="Creative Commons Attribution 4.0",
    sources=_texts("wnut17", "https://raw.githubusercontent.com/leondz/emerging_entities_17/master", WNUT17_PARTS),
    others=_copies("wnut17", WNUT17_PARTS),
)

BC5CDR_PARTS: tuple[Part, ...] = (
    (
        "train",
        "train.tsv",
        1039940,
        "b731361c0ed73afd04cc5fdad39afcdfd8f325d6e46c282339185a91d1af4c14",
        248275,
        "cdc0db48dbddab42ef89e60a305ffab8a52bf1feaa39598b3080b2aa147b4ae1",
    ),
    (
        "dev",
        "devel.tsv",
        1031781,
        "b909de65c4f7e3c23bb09ad52d654cdc92e96db941abe1a5dcf6f6010c03cff5",
        244215,
        "4d42f5766f3a817fda899e76308d280035dd56cdbe177b0520a0bb7f2270d6b7",
    ),
    (
        "test",
        "test.tsv",
        1080717,
        "e41a2843a5fff0cd8d1a88cb147968d61ae29336ca70cddc3d7fb8ff21dfa1e8",
        258455,
        "c4a256082ec989cb88fd251aaafd7e53e1e538745b646c12cc17d7fcceea29c0",
    ),
)

BC5CDR = Dataset(
    name="bc5cdr",
    title="chemicals and diseases in titles and abstracts of PubMed",
    page="https://github.com/cambridgeltl/MTL-Bioinformatics-2016",
    citation="J. Li et al.: BioCreative V CDR task corpus: a resource for chemical disease relation extraction, "
    "Database, 2016; split and words of G. Crichton, S. Pyysalo, B. Chiu, A. Korhonen: A neural network multi-task "
    "learning approach to biomedical named entity recognition, BMC Bioinformatics, 2017",
    terms="Creative Commons Attribution 4.0",
    sources=_texts(
        "bc5cdr",
        "https://raw.githubusercontent.com/cambridgeltl/MTL-Bioinformatics-2016/master/data/BC5CDR-IOB",
        BC5CDR_PARTS,
    ),
    others=_copies("bc5cdr", BC5CDR_PARTS),
)

GLOVE = Dataset(
    name="glove",
    title="word vectors GloVe 6B, 50 dimensions",
    page="https://nlp.stanford.edu/projects/glove/",
    citation="J. Pennington, R. Socher, C. D. Manning: GloVe: Global Vectors for Word Representation, EMNLP 2014",
    terms="Public Domain Dedication and License 1.0",
    sources=(
        Source(
            "https://nlp.stanford.edu/data/glove.6B.zip",
            files=(
                File(
                    "vectors",
                    "glove/glove.6B.50d.txt",
                    171350079,
                    "d8f717f8dd4b545cb7f418ef9f3d0c3e6e68a6f48b97d32f8b7aae40cb31f96f",
                    member="glove.6B.50d.txt",
                ),
            ),
            size=862182613,
            sha256="617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            max_bytes=2**30,
        ),
    ),
    others=(  # only the rows for the words of CoNLL-2000
        File(
            "vectors",
            "glove/glove.6B.50d.conll2000-vocab.txt.gz",
            2986504,
            "cff4b964c9607775706b44a7d73fc226ab17746e29a08100d0f7ee4ba30cfc66",
        ),
    ),
)

SENNA = Dataset(
    name="senna",
    title="word vectors of SENNA, 50 dimensions",
    page="https://ronan.collobert.com/senna/",
    citation="R. Collobert, J. Weston, L. Bottou, M. Karlen, K. Kavukcuoglu, P. Kuksa: "
    "Natural Language Processing (Almost) from Scratch, JMLR 12, 2011",
    terms="SENNA licence: non-commercial research and evaluation only; may be passed on unchanged, with the licence",
    must_agree=True,
    sources=(
        Source(
            "https://ronan.collobert.com/senna/senna-v3.0.tgz",
            files=(
                File("words", "senna/words.lst", 1101872, member="senna/hash/words.lst"),
                File(
                    "vectors",
                    "senna/embeddings.txt",
                    git_blob="1793836e6e00997f7dd54290eb370cf29ffaadbb",
                    member="senna/embeddings/embeddings.txt",
                ),
            ),
            max_bytes=2**30,
        ),
    ),
)

HORSES = Dataset(
    name="horses",
    title="Weizmann horses: 328 pictures with figure and ground",
    page="http://www.msri.org/people/members/eranb/",
    citation="E. Borenstein, S. Ullman: Class-Specific, Top-Down Segmentation, ECCV 2002, and "
    "Learning to Segment, ECCV 2004",
    terms="none known",
    sources=(Source("http://www.msri.org/people/members/eranb/weizmann_horse_db.tar.gz", _horses(), max_bytes=2**28),),
    others=(
        File(
            "files.tsv",
            "horses/files.tsv",
            68026,
            "1e4b15d09121ff39d603a29790578b4c4616a83d4afc6a37306263a65d7ee197",
            optional=True,
        ),
    ),
)

DATASETS = {entry.name: entry for entry in (OCR, CONLL2000, WNUT17, BC5CDR, GLOVE, SENNA, HORSES)}
