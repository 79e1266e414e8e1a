"""Where the laboratory went, for programs that import it by its old name."""

raise ImportError(
    "equipoise.lab is now the package equipoise_lab of the distribution equipoise-lab; "
    "equipoise.lab.tagger is now equipoise.tagger"
)
