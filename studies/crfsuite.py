"""The linear net of features beside CRFsuite: the same features, the same sentences, one core.

    pip install python-crfsuite==0.9.12
    OMP_NUM_THREADS=1 python studies/crfsuite.py DATA --out studies/crfsuite.json

DATA has conll2000/, bc5cdr/ and wnut17/. Training never sees the test sentences, which are scored once. With
`--development` the development sentences are scored instead, a tenth of the training sentences of CoNLL-2000, on which
settings were chosen. Times are CPU seconds of one process from sentences to a trained model, features included.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from equipoise import Tagger
from equipoise.tagger.columns import read
from equipoise.tagger.evaluation import evaluate
from equipoise.tagger.sentence import Sentence
from equipoise.tagger.tagset import infer
from equipoise.tagger.templates import of_words

ALGORITHMS = ("lbfgs", "ap", "pa", "arow")
PARTS = {
    "conll2000": ("train.txt.gz", None, "test.txt.gz"),
    "bc5cdr": ("train.conll.gz", "dev.conll.gz", "test.conll.gz"),
    "wnut17": ("train.conll.gz", "dev.conll.gz", "test.conll.gz"),
}
Tags = Sequence[Sequence[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--corpora", nargs="+", default=list(PARTS))
    parser.add_argument("--algorithms", nargs="*", default=ALGORITHMS)
    parser.add_argument("--nets", nargs="*", default=["features"], help="of Tagger")
    parser.add_argument("--seeds", type=int, default=3, help="of Tagger")
    parser.add_argument("--development", action="store_true", help="score development sentences")
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = []
    for corpus in options.corpora:
        train, test = parts(options.data / corpus, PARTS[corpus], options.development)
        trained: list[tuple[str, Callable[[Sequence[Sentence], Sequence[Sentence]], tuple[float, Tags]]]] = [
            (name, crfsuite(name)) for name in options.algorithms
        ]
        trained += [(f"{net}, seed {seed}", ours(net, seed)) for net in options.nets for seed in range(options.seeds)]
        for name, train_and_tag in trained:
            seconds, tagged = train_and_tag(train, test)
            f1 = evaluate(infer(train, None, corpus), test, tagged).overall.f1
            records.append({"corpus": corpus, "trained": name, "f1": round(100 * f1, 2), "seconds": round(seconds, 1)})
            print(json.dumps(records[-1]), flush=True)
    if options.out:
        options.out.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")


def parts(folder: Path, names: tuple[str, str | None, str], development: bool) -> tuple[list[Sentence], list[Sentence]]:
    """The sentences to learn from and those to score."""
    train = read(folder / names[0])
    if not development:
        return train, read(folder / names[2])
    if names[1] is not None:
        return train, read(folder / names[1])
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0)).tolist()
    held = len(train) // 10
    return [train[i] for i in order[held:]], [train[i] for i in order[:held]]


def crfsuite(algorithm: str) -> Callable[[Sequence[Sentence], Sequence[Sentence]], tuple[float, Tags]]:
    import pycrfsuite

    def run(train: Sequence[Sentence], test: Sequence[Sentence]) -> tuple[float, Tags]:
        with TemporaryDirectory() as folder:
            path = str(Path(folder, "model"))
            began = time.process_time()
            trainer = pycrfsuite.Trainer(algorithm, verbose=False)
            for sentence in train:
                trainer.append(list(of_words(sentence.words)), sentence.tags)
            trainer.train(path)
            seconds = time.process_time() - began
            tagger = pycrfsuite.Tagger()
            tagger.open(path)
            return seconds, [tagger.tag(list(of_words(sentence.words))) for sentence in test]

    return run


def ours(net: str, seed: int) -> Callable[[Sequence[Sentence], Sequence[Sentence]], tuple[float, Tags]]:
    def run(train: Sequence[Sentence], test: Sequence[Sentence]) -> tuple[float, Any]:
        began = time.process_time()
        tagger = Tagger(net=net, seed=seed).fit([x.words for x in train], [x.tags for x in train])
        return time.process_time() - began, tagger.predict([x.words for x in test])

    return run


if __name__ == "__main__":
    main()
