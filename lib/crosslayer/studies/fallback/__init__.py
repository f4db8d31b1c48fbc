"""What a page over HTTP/3 costs where the path blocks QUIC, TCP or DNS: what a browser tries, and when."""

from crosslayer.study import question

STUDY = question(
    __name__,
    asks="How much later does a page load if the network blocks QUIC, and when does a browser try something else?",
    heading="Blocked paths",
    lead="Page loads on a path that drops or rejects packets: time to the first byte, and what the browser tried.",
    links=("fiber", "4g"),
    pages=("example.org",),
    rounds=(1, 10, 30),
    smoke={"links": ("4g",)},
    one_host="it blocks packets to the page's own host only",
)
