//go:build linux

// Command crosslayer-guest is the first process of the User-Mode Linux guest in which everything is measured: by a clock
// that stands still while anything computes, or where the host refuses namespaces. It runs one command as if that ran on
// the host: same files (read-only, but for folders in memory and those that are named), same user, same standard streams.
//
// The job lies in a file that the kernel's word crosslayer_job names: a line of JSON and, where the job says so, all of the
// command's standard input. Otherwise it talks to lib/crosslayer/guest over the guest's first console, in frames: a
// letter, the length (4 bytes, big endian), the payload. The guest sends R (it runs), then 1 and 2 (output and errors of the
// command), A (standard input was taken), C (1,024 bytes more may come) and last X (its exit status) or F (why it could not
// be run). The host sends 0 (standard input, empty at its end; the next after an A), S (a signal's number) and W (the
// terminal's size).
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

// What prepare sets for its own thread (timer slack, scheduling) the command gets from the thread that starts it.
func init() { runtime.LockOSThread() }

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "crosslayer-guest: is the init of a User-Mode Linux guest, not a program to run")
		os.Exit(2)
	}
	job, jobErr := takeJob(os.Getenv("crosslayer_job")) // now: it may lie where the devices will be
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

// A job is what the host asks for.
type job struct {
	Command     []string  `json:"command"`        // program (a path) and arguments
	Environment []string  `json:"environment"`    // NAME=value
	Folder      string    `json:"folder"`         // working folder
	UID         uint32    `json:"uid"`            // whom it runs as
	GID         uint32    `json:"gid"`            //
	Groups      []uint32  `json:"groups"`         //
	Writable    []string  `json:"writable"`       // folders of the host, the same in the guest
	Virtual     bool      `json:"virtual"`        // the clock stands still while anything computes
	Terminal    [3]bool   `json:"terminal"`       // which standard streams are a terminal
	Size        [2]uint16 `json:"size"`           // rows and columns of the terminal
	Given       bool      `json:"given"`          // what follows in the file is all of the command's standard input
	SetClock    bool      `json:"settable_clock"` // lines in clockControl set the time of day

	file *os.File // where that begins
}

// serve runs the job to its end and returns its exit status, as a shell has it.
func serve(j *job, line *console) (int, error) {
	line.send('R', nil)
	if err := prepare(j); err != nil {
		return 0, err
	}
	return run(j, line)
}

// takeJob reads the job, and leaves its file open where the command's standard input begins.
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
