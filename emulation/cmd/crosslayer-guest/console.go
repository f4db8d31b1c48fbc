//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// console is the line to the host.
type console struct {
	file     *os.File
	reader   *bufio.Reader
	mutex    sync.Mutex
	received int // since the host was last told that more may come
}

// User-Mode Linux does not take up its input again once a terminal's 4 KB were full. So the host sends no more than
// twice this ahead of what it was told it may.
const credit = 1024

func openConsole(name string) (*console, error) {
	fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	if err := makeRaw(fd); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	c := &console{file: file}
	c.reader = bufio.NewReader(c)
	return c, nil
}

// Read reads what has come, and tells the host that more may.
func (c *console) Read(buffer []byte) (int, error) {
	n, err := c.file.Read(buffer)
	for c.received += n; c.received >= credit; c.received -= credit {
		c.send('C', nil)
	}
	return n, err
}

// makeRaw makes a terminal hand on every byte as it is.
func makeRaw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

// send writes one frame; whole, from any goroutine.
func (c *console) send(kind byte, payload []byte) {
	frame := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	c.mutex.Lock()
	defer c.mutex.Unlock()
	_, _ = c.file.Write(append(frame, payload...)) // a host that is gone ends this guest
}

// receive reads one frame.
func (c *console) receive() (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		return 0, nil, err
	}
	payload := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err := io.ReadFull(c.reader, payload)
	return head[0], payload, err
}

// drain waits until the host has everything that was sent.
func (c *console) drain() {
	_ = unix.IoctlSetInt(int(c.file.Fd()), unix.TCSBRK, 1)
}

// openTerminal makes a terminal for the command: our side, and its.
func openTerminal(j *job) (*os.File, *os.File, error) {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("terminal: %w", err)
	}
	name := fmt.Sprintf("/dev/pts/%d", number)
	child, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := os.Chown(name, int(j.UID), int(j.GID)); err != nil {
		return nil, nil, err
	}
	if !j.Terminal[0] { // the host's terminal is in use, and still turns \n into \r\n by itself
		t, err := unix.IoctlGetTermios(int(child.Fd()), unix.TCGETS)
		if err != nil {
			return nil, nil, err
		}
		t.Oflag &^= unix.OPOST
		if err := unix.IoctlSetTermios(int(child.Fd()), unix.TCSETS, t); err != nil {
			return nil, nil, err
		}
	}
	return ours, child, resize(ours, j.Size)
}

func resize(terminal *os.File, size [2]uint16) error {
	return unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size[0], Col: size[1]})
}

// setBatch makes the scheduler let a program that is woken wait its turn.
func setBatch() error {
	const schedBatch = 3
	priority := int32(0)
	_, _, errno := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, 0, schedBatch, uintptr(unsafe.Pointer(&priority)))
	if errno != 0 {
		return errno
	}
	return nil
}
