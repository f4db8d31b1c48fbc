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

// console is the guest's terminal to the host; it carries frames, see the package comment.
type console struct {
	file     *os.File
	reader   *bufio.Reader
	mutex    sync.Mutex
	received int // bytes read since the last C frame, less than credit
}

// credit is the number of bytes that one C frame allows the host to send. User-Mode Linux stops reading a terminal for good
// once its 4 KB buffer was full. The host therefore never has more than 2 x credit unacknowledged bytes on the way.
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

// Read implements io.Reader. It sends the host a C frame for every credit bytes read.
func (c *console) Read(buffer []byte) (int, error) {
	n, err := c.file.Read(buffer)
	for c.received += n; c.received >= credit; c.received -= credit {
		c.send('C', nil)
	}
	return n, err
}

// makeRaw sets a terminal to raw mode: it passes every byte unchanged and without waiting for a line.
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

// send writes one frame. It is safe for concurrent use.
func (c *console) send(kind byte, payload []byte) {
	frame := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	c.mutex.Lock()
	defer c.mutex.Unlock()
	_, _ = c.file.Write(append(frame, payload...)) // ignored: receive fails too if the host is gone, and powers the guest off
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

// drain waits until the terminal has transmitted all output (tcdrain).
func (c *console) drain() {
	_ = unix.IoctlSetInt(int(c.file.Fd()), unix.TCSBRK, 1)
}

// openTerminal creates a pseudo-terminal for the command. It returns the master and the slave.
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
	if !j.Terminal[0] { // the host's terminal is not in raw mode: it turns \n into \r\n itself
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

// setBatch selects the policy SCHED_BATCH: a process that wakes up does not preempt the running one.
func setBatch() error {
	const schedBatch = 3
	priority := int32(0)
	_, _, errno := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, 0, schedBatch, uintptr(unsafe.Pointer(&priority)))
	if errno != 0 {
		return errno
	}
	return nil
}
