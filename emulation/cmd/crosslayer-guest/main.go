//go:build linux

// Command crosslayer-guest is the init of the User-Mode Linux guest that contains the whole testbed. The testbed runs in
// a guest for virtual time, or because the host's kernel does not allow namespaces. The init runs one command with the
// host's files, user and standard streams. Files are read-only except in /tmp and /run, which are in memory, and in the
// folders that the job names.
//
// The kernel parameter crosslayer_job names the file with the job: one line of JSON, followed by the command's whole
// standard input if the job's member "given" is true. All other communication with lib/crosslayer/guest uses frames on the
// guest's first console: a letter, the length of the payload (4 bytes, big endian) and the payload.
//
// Frames from the guest:
//
//	R     the guest is running
//	1, 2  standard output and standard error of the command
//	A     the last 0 frame was written to the command's standard input
//	C     the host may send 1,024 more bytes
//	X     exit status of the command; the last frame
//	F     the reason why the command could not be run; the last frame
//
// Frames from the host:
//
//	0  standard input, empty at its end; the host waits for an A before the next one
//	S  number of a signal for the command
//	W  size of the terminal
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// prepare sets timer slack and scheduling policy of its own thread. The command inherits both only if the same thread
// starts it.
func init() { runtime.LockOSThread() }

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "crosslayer-guest: is the init of a User-Mode Linux guest, not a program to run")
		os.Exit(2)
	}
	job, jobErr := takeJob(os.Getenv("crosslayer_job")) // first: mountDevices hides a job in /dev
	if err := mountDevices(); err != nil {
		fmt.Fprintln(os.Stderr, "crosslayer-guest:", err)
		powerOff()
	}
	line, err := openConsole("/dev/tty0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "crosslayer-guest:", err)
		powerOff()
	}
	if jobErr != nil {
		line.send('F', []byte("job: "+jobErr.Error()))
	} else if status, err := serve(job, line); err != nil {
		line.send('F', []byte(err.Error()))
	} else {
		line.send('X', strconv.AppendInt(nil, int64(status), 10))
	}
	line.drain()
	powerOff()
}

func powerOff() {
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

// job is a request of the host to run a command.
type job struct {
	Command     []string  `json:"command"`        // program (a path) and arguments
	Environment []string  `json:"environment"`    // NAME=value
	Folder      string    `json:"folder"`         // working folder
	UID         uint32    `json:"uid"`            // user and groups that the command runs as
	GID         uint32    `json:"gid"`            //
	Groups      []uint32  `json:"groups"`         //
	Writable    []string  `json:"writable"`       // folders of the host that are writable in the guest
	Virtual     bool      `json:"virtual"`        // the guest runs in virtual time
	Terminal    [3]bool   `json:"terminal"`       // which standard streams are a terminal
	Size        [2]uint16 `json:"size"`           // rows and columns of the terminal
	Given       bool      `json:"given"`          // the command's standard input follows in the job's file
	SetClock    bool      `json:"settable_clock"` // the command may change the time of day, see clockControl

	file *os.File // the job's file, positioned after the first line
}

// serve runs the job and returns its exit status; 128 + the number of the signal that ended it, as in a shell.
func serve(j *job, line *console) (int, error) {
	line.send('R', nil)
	if err := prepare(j); err != nil {
		return 0, err
	}
	return run(j, line)
}

// takeJob reads the job. It leaves the file open, positioned at the start of the command's standard input.
func takeJob(name string) (*job, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(file).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(int64(len(line)), io.SeekStart); err != nil {
		return nil, err
	}
	j := &job{file: file}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(j); err != nil {
		return nil, fmt.Errorf("%w (is crosslayer-guest older than the library? `make setup`)", err)
	}
	if len(j.Command) == 0 {
		return nil, errors.New("it names no command (is crosslayer-guest older than the library? `make setup`)")
	}
	return j, nil
}
