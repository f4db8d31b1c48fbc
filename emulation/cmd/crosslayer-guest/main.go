//go:build linux

// Command crosslayer-guest is the first process of the User-Mode Linux guest in which everything is measured: by a clock
// that stands still while anything computes, or where the host refuses namespaces. It runs one command as if that ran on
// the host: same files (read-only, but for folders in memory and those that are named), same user, same standard streams.
//
// It talks to lib/crosslayer/guest over the guest's first console, in frames: a letter, the length (4 bytes, big endian),
// the payload. The guest sends R (ready), then 1 and 2 (output and errors of the command), A (standard input was taken),
// C (1,024 bytes more may come) and last X (its exit status) or F (why it could not be run). The host sends J (the job,
// JSON), then 0 (standard input, empty at its end; the next after an A), S (a signal's number) and W (the terminal's size).
package main

import (
	"encoding/json"
	"fmt"
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
	if err := mountDevices(); err != nil {
		fmt.Fprintln(os.Stderr, "crosslayer-guest:", err)
		powerOff()
	}
	line, err := openConsole("/dev/tty0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "crosslayer-guest:", err)
		powerOff()
	}
	line.send('R', nil)
	if status, err := serve(line); err != nil {
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
	Words       []string  `json:"words"`       // the command, its first word a path
	Environment []string  `json:"environment"` // NAME=value
	Folder      string    `json:"folder"`      // working folder
	UID         uint32    `json:"uid"`         // whom it runs as
	GID         uint32    `json:"gid"`         //
	Groups      []uint32  `json:"groups"`      //
	Writable    []string  `json:"writable"`    // folders of the host, the same in the guest
	Virtual     bool      `json:"virtual"`     // the clock stands still while anything computes
	Terminal    [3]bool   `json:"terminal"`    // which standard streams are a terminal
	Size        [2]uint16 `json:"size"`        // rows and columns of the terminal
}

// serve takes the job, runs it to its end and returns its exit status, as a shell has it.
func serve(line *console) (int, error) {
	kind, payload, err := line.receive()
	if err != nil || kind != 'J' {
		return 0, fmt.Errorf("no job came: %c, %w", kind, err)
	}
	var j job
	if err := json.Unmarshal(payload, &j); err != nil {
		return 0, fmt.Errorf("job: %w", err)
	}
	if err := prepare(&j); err != nil {
		return 0, err
	}
	return run(&j, line)
}
