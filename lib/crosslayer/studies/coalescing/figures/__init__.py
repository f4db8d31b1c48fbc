"""Figures of the study, one module per part of the paper. The figures of the paper are in the paper's order."""

from crosslayer.studies.coalescing.figures import dns_overhead, handshakes, link_check, page_loads

FIGURES = (*link_check.FIGURES, *handshakes.FIGURES, *dns_overhead.FIGURES, *page_loads.FIGURES)
