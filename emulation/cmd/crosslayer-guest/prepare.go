//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mountDevices mounts what the console needs; system calls, since the host's mount program is setuid to a user whom a
// guest without root does not know.
func mountDevices() error {
	if err := os.MkdirAll("/dev", 0o755); err != nil {
		return err
	}
	return mount("devtmpfs", "/dev", "devtmpfs", "mode=755")
}

func mount(source, target, kind, options string) error {
	if err := syscall.Mount(source, target, kind, 0, options); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}

// prepare makes the guest look like the host: its files, folders in memory over those that everybody writes to.
func prepare(j *job) error {
	for _, m := range []struct{ target, kind, options string }{
		{"/proc", "proc", ""},
		{"/sys", "sysfs", ""},
		{"/dev/pts", "devpts", "mode=620,ptmxmode=666"},
		{"/dev/shm", "tmpfs", "mode=1777"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := mount(m.kind, m.target, m.kind, m.options); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink("/proc/self/"+target, "/dev/"+name); err != nil {
			return err
		}
	}
	if err := foldersInMemory(); err != nil {
		return err
	}
	for _, folder := range j.Writable {
		// hostfs takes the host's path as its options.
		if err := mount("none", folder, "hostfs", folder); err != nil {
			return err
		}
	}
	// An ordinary user may ping, as on Debian.
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0); err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: 1 << 16, Max: 1 << 19}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if j.Virtual {
		if err := unhurried(); err != nil {
			return err
		}
	}
	if j.SetClock {
		if err := settableClock(); err != nil {
			return err
		}
	}
	return loopbackUp()
}

// clockControl takes lines with a number of nanoseconds, by which the guest's time of day is set. The command cannot set
// it by itself, since its user is none of the guest's first user namespace.
const clockControl = "/dev/crosslayer-clock"

func settableClock() error {
	if err := syscall.Mkfifo(clockControl, 0o600); err != nil {
		return fmt.Errorf("%s: %w", clockControl, err)
	}
	if err := os.Chmod(clockControl, 0o622); err != nil {
		return err
	}
	fifo, err := os.OpenFile(clockControl, os.O_RDWR, 0) // so that it does not end with a writer
	if err != nil {
		return err
	}
	go func() {
		for lines := bufio.NewScanner(fifo); lines.Scan(); {
			step, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				continue
			}
			now := syscall.NsecToTimeval(time.Now().UnixNano() + step)
			_ = syscall.Settimeofday(&now)
		}
	}()
	return nil
}

// foldersInMemory puts a layer in memory over /tmp, where what the host has there can be read, and an empty /run.
func foldersInMemory() error {
	system, systemErr := os.Readlink("/run/current-system") // where NixOS has its commands
	if err := mount("tmpfs", "/run", "tmpfs", "mode=755"); err != nil {
		return err
	}
	if systemErr == nil {
		if err := os.Symlink(system, "/run/current-system"); err != nil {
			return err
		}
	}
	const layer = "/run/guest/tmp"
	upper, work := filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	for _, folder := range []string{upper, work} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(upper, 0o777|os.ModeSticky); err != nil {
		return err
	}
	return mount("overlay", "/tmp", "overlay", fmt.Sprintf("lowerdir=/tmp,upperdir=%s,workdir=%s", upper, work))
}

// unhurried makes programs ready for a clock that stands still. Their timers end when they should: 50 us later is the
// default, to save power. And a program that is woken waits until the one that woke it waits itself: what they say to each
// other comes in fewer pieces then, with a third of the changes between them and the same end in the same virtual time.
func unhurried() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	if err := setBatch(); err != nil {
		return fmt.Errorf("scheduling: %w", err)
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}
