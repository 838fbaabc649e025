"""Charts of continual streams, drawn from records."""

from cl_cnaps.results.plots.drawing import FORMATS, KINDS, draw_stream_figures, draw_streams

__all__ = ["FORMATS", "KINDS", "draw_stream_figures", "draw_streams"]
