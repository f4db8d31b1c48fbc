"""Figures of the study: a module for each part of the paper, those of the paper in its order."""

from crosslayer.studies.coalescing.figures import dns_overhead, handshakes, link_check, page_loads

FIGURES = (*link_check.FIGURES, *handshakes.FIGURES, *dns_overhead.FIGURES, *page_loads.FIGURES)
