"""An entry of the registry: a data set, where it comes from, and the files that it puts into the data folder."""

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """A file in the data folder. Files of one data set with the same key are alternatives: one of them is enough."""

    key: str
    path: str  # relative to the data folder
    size: int | None = None
    sha256: str | None = None
    content_sha256: str | None = None  # of the uncompressed content of a .gz file, for recompressed copies
    git_blob: str | None = None  # git object ID of the content, if no better digest is known
    member: str | None = None  # its name in the publisher's archive
    optional: bool = False

    @property
    def recognisable(self) -> bool:
        """Whether a digest is known, so that the content can be verified."""
        return bool(self.sha256 or self.content_sha256 or self.git_blob)


@dataclass(frozen=True)
class Source:
    """A URL of the publisher and the files it provides: a single file, or some members of an archive."""

    url: str
    files: tuple[File, ...]
    size: int | None = None
    sha256: str | None = None  # None: not known
    max_bytes: int = 2**26  # size limit of the download and of the unpacked files

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]

    @property
    def verifiable(self) -> bool:
        """Whether everything that a download puts into the data folder can be checked by a digest."""
        return self.sha256 is not None or all(file.recognisable for file in self.files)


@dataclass(frozen=True)
class Dataset:
    name: str
    title: str
    page: str
    citation: str
    terms: str
    sources: tuple[Source, ...]
    others: tuple[File, ...] = ()  # files without a URL that are used if present
    packaged: bool = False  # included in the package; the files are needed only to rebuild it
    must_agree: bool = False  # the publisher requires consent to the terms before a download

    @property
    def files(self) -> tuple[File, ...]:
        return (*(file for source in self.sources for file in source.files), *self.others)

    @property
    def downloadable(self) -> bool:
        """Whether the data set can be downloaded; otherwise the user must put its files into the data folder."""
        return all(source.verifiable for source in self.sources)

    @property
    def unknown(self) -> tuple[str, ...]:
        """One note for each archive whose own digest is not known."""
        notes = []
        for source in self.sources:
            if source.sha256 is None:
                unverified = [file.path for file in source.files if not file.recognisable]
                rest = f"nor of {', '.join(unverified)}" if unverified else "but each file in it is checked"
                notes.append(f"no digest of the publisher's {source.name} is known, {rest}")
        return tuple(notes)
