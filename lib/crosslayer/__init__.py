"""crosslayer: what encrypted DNS costs a web user, and what sharing QUIC between DNS and HTTP/3 gives back."""

__version__ = "0.1.0"
