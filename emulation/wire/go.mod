module crosslayer/emulation/wire

go 1.26
