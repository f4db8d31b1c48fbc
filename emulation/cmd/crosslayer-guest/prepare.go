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

// mountDevices mounts /dev, which contains the console. It uses the system call: the host's mount program is setuid to a
// user that does not exist in a rootless guest.
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

// prepare mounts file systems and sets limits so that the command finds the same environment as on the host.
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
	// Every user may send ICMP echo requests, as on Debian.
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0); err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: 1 << 16, Max: 1 << 19}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if j.Virtual {
		if err := prepareForVirtualTime(); err != nil {
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

// clockControl is a FIFO that changes the guest's time of day. Each line is a number of nanoseconds to add. The command
// cannot set the clock itself, because its user has no privileges in the guest's initial user namespace.
const clockControl = "/dev/crosslayer-clock"

func settableClock() error {
	if err := syscall.Mkfifo(clockControl, 0o600); err != nil {
		return fmt.Errorf("%s: %w", clockControl, err)
	}
	if err := os.Chmod(clockControl, 0o622); err != nil {
		return err
	}
	fifo, err := os.OpenFile(clockControl, os.O_RDWR, 0) // also for writing: else reading would end when a writer closes it
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

// foldersInMemory mounts an overlay in memory over /tmp, with the host's files readable, and an empty /run.
func foldersInMemory() error {
	system, systemErr := os.Readlink("/run/current-system") // NixOS keeps its programs there
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

// prepareForVirtualTime sets timer slack and scheduling policy for virtual time. The smallest timer slack lets timers
// expire on time; the default delays them by up to 50 us. With SCHED_BATCH a woken process runs only when the process that
// woke it blocks. Processes then exchange data in fewer pieces, with a third of the context switches and the same virtual
// times.
func prepareForVirtualTime() error {
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
