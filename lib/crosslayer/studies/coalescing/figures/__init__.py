"""Figures of the study: one module per part of the paper. The paper's figures are in the order of the paper."""

from crosslayer.studies.coalescing.figures import dns_overhead, handshakes, link_check, page_loads

FIGURES = (*link_check.FIGURES, *handshakes.FIGURES, *dns_overhead.FIGURES, *page_loads.FIGURES)
