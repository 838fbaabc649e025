"""What the paper reports, as data, to stand beside what was measured here."""

from cl_cnaps.report.paper.continual import PaperFigure, paper_figure, paper_figures

__all__ = ["PaperFigure", "paper_figure", "paper_figures"]
