//go:build linux

// Command crosslayer-uml-link is the init of the User-Mode Linux guest that emulates the link if the host's kernel has no
// netem. It connects the guest's two network devices with a bridge. Then it reads commands from its console, one a line,
// runs each, and writes its output and a line "[rc=N]". At the end of its input it powers the guest off.
//
// It mounts /proc with the system call: the mount program of the host is setuid to a user that does not exist in a rootless
// guest. Without the guest's own /proc, `tc` would compute delays with the host's clock.
//
// Usage: init=PATH/crosslayer-uml-link with MODULES=folder, IP=path and TC=path on the kernel's command line. The modules in
// the folder are loaded in the order of their names.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "crosslayer-uml-link: is the init of a User-Mode Linux guest, not a program to run")
		os.Exit(2)
	}
	if err := setUp(); err != nil {
		fmt.Println("FAILED", err)
	} else {
		fmt.Println("READY")
		serve()
	}
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

func setUp() error {
	if err := rawConsole(); err != nil {
		return err
	}
	for target, kind := range map[string]string{"/proc": "proc", "/sys": "sysfs"} {
		if err := syscall.Mount(kind, target, kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	// Without IPv6 the guest itself sends no neighbour discovery over the link.
	for _, scope := range []string{"all", "default"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+scope+"/disable_ipv6", []byte("1"), 0)
	}
	modules, _ := filepath.Glob(filepath.Join(os.Getenv("MODULES"), "*.ko"))
	for _, file := range modules {
		if err := loadModule(file); err != nil {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	ip := os.Getenv("IP")
	for _, line := range []string{
		"link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
		"link set br0 up",
		"link set vec0 master br0 txqueuelen 10000 promisc on up",
		"link set vec1 master br0 txqueuelen 10000 promisc on up",
	} {
		if out, err := exec.Command(ip, strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// rawConsole stops the console from echoing commands and from turning \n into \r\n.
func rawConsole() error {
	var t syscall.Termios
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TCGETS, uintptr(unsafe.Pointer(&t))); errno != 0 {
		return fmt.Errorf("console: %w", errno)
	}
	t.Lflag &^= syscall.ECHO | syscall.ISIG
	t.Oflag &^= syscall.OPOST
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TCSETS, uintptr(unsafe.Pointer(&t))); errno != 0 {
		return fmt.Errorf("console: %w", errno)
	}
	return nil
}

const sysFinitModule = 313 // x86-64, the only architecture that the guest is built for

func loadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	empty := [1]byte{}
	_, _, errno := syscall.Syscall(sysFinitModule, f.Fd(), uintptr(unsafe.Pointer(&empty[0])), 0)
	if errno != 0 && errno != syscall.EEXIST {
		return errno
	}
	return nil
}

// serve runs the command of each line, `tc` or `ip`, and writes its output and exit status.
func serve() {
	programs := map[string]string{"tc": os.Getenv("TC"), "ip": os.Getenv("IP")}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command := strings.Fields(lines.Text())
		out, err := exec.Command(programs[command[0]], command[1:]...).CombinedOutput()
		os.Stdout.Write(out)
		code := 0
		if err != nil {
			code = 127
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			}
		}
		fmt.Printf("\n[rc=%d]\n", code)
	}
}
