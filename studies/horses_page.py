"""Where do unary, joint and learned scaling differ on horses? An HTML page with the pictures of one fold.

    python studies/horses_page.py horses.html [--models FOLDER] [--device cuda] [--net default] [--fold 0]

Models that are in the folder are not trained again, so they may come from another machine. `--train-only` makes the
models without the page and does not need Pillow.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from equipoise_lab.plan import tables
from equipoise_lab.tasks import Parameters
from equipoise_lab.training import Model, Run, train

SCHEMES = {"unary": "unary", "joint": "joint", "balanced": "learned"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--net", default="default")
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--train-only", action="store_true")
    options = parser.parse_args()
    files = {name: options.models / f"horses-{name}.safetensors" for name in SCHEMES}
    recipes = {
        replace(
            tables.setting("horses", "marginal", scheme),
            net=options.net,
            fold=options.fold,
            max_epochs=options.epochs,
        ): name
        for name, scheme in SCHEMES.items()
        if not files[name].exists()
    }

    def keep(run: Run, parameters: Parameters) -> None:
        name = recipes[run.recipe]
        options.models.mkdir(parents=True, exist_ok=True)
        Model(run.recipe, parameters).save(files[name])
        print(f"{name}: {100 * run.test:.1f} % on the test fold after {run.epochs} epochs", flush=True)

    if recipes:
        train(list(recipes), device=options.device, done=keep)
    if not options.train_only:
        from equipoise_lab.report.gallery import gallery

        gallery(files, options.out)


if __name__ == "__main__":
    main()
