package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func listen(t *testing.T, path string) *Socket {
	t.Helper()
	socket, err := Listen(path, "program")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

func TestSocketIsPrivate(t *testing.T) {
	folder := t.TempDir()
	listen(t, filepath.Join(folder, "control"))
	info, err := os.Lstat(filepath.Join(folder, "control"))
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Listen must not change the umask: it applies to the whole process, where other goroutines may create folders.
func TestUmaskIsLeftAlone(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "before"), 0o755); err != nil {
		t.Fatal(err)
	}
	usual, err := os.Stat(filepath.Join(folder, "before"))
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	spoilt := make(chan error, 1)
	go func() {
		var fault error
		for i := 0; !done.Load(); i++ {
			made := filepath.Join(folder, fmt.Sprint(i))
			if err := os.Mkdir(made, 0o755); err != nil {
				fault = err
			} else if info, err := os.Stat(made); err != nil || info.Mode() != usual.Mode() {
				fault = fmt.Errorf("a folder of mode %v instead of %v: %w", info.Mode(), usual.Mode(), err)
			}
			_ = os.Remove(made)
		}
		spoilt <- fault
	}()
	for range 500 {
		socket, err := Listen(filepath.Join(folder, "control"), "program")
		if err != nil {
			t.Fatal(err)
		}
		_ = socket.Close()
	}
	done.Store(true)
	if err := <-spoilt; err != nil {
		t.Error(err)
	}
}

// The longest path that clients can connect to can be bound, although the path in the private folder is too long for a socket.
func TestLongestPath(t *testing.T) {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, strings.Repeat("x", maxPathBytes-len(folder)-1))
	listen(t, path)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := Listen(path+"x", "program"); err == nil || !strings.Contains(err.Error(), "is longer than the 107 bytes") {
		t.Error(err)
	}
}

// The socket of a killed program is replaced. The socket of a running program, a file and a folder are not.
func TestSocketLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if _, err := Listen(path, "program"); err == nil || !strings.Contains(err.Error(), "belongs to a running program") {
		t.Errorf("took over the socket of a running program: %v", err)
	}
	left.Close()
	socket := listen(t, path)
	if err := socket.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the closed socket is left behind: %v", err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := path + "-link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for bad, want := range map[string]string{
		path:                                    "exists and is no socket; choose another path",
		link:                                    "exists and is no socket; choose another path",
		filepath.Dir(path):                      "exists and is no socket; choose another path",
		filepath.Join(path, "below"):            "not a directory; choose a path in a folder that exists",
		filepath.Join(path+"-missing", "below"): "no such file or directory; choose a path in a folder that exists",
		path + "\x00":                           "invalid argument; choose a path",
	} {
		if _, err := Listen(bad, "program"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "precious" {
		t.Errorf("the file has %q, %v", content, err)
	}
}

func TestCommands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control")
	socket := listen(t, path)
	go socket.Serve(Commands{
		"hello": func([]byte) any { return OK },
		"echo":  func(object []byte) any { return Refusal(errors.New(string(object))) },
	})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for _, c := range []struct{ line, answer string }{
		{`{"command": "hello"}`, `{"ok":true}`},
		{`{"command": "echo", "x": 1}`, `{"ok":false,"error":"{\"command\": \"echo\", \"x\": 1}"}`},
		{`{"command": "dance"}`, `{"ok":false,"error":"unknown command \"dance\""}`},
		{`{}`, `{"ok":false,"error":"no command"}`},
		{`nonsense`, `{"ok":false,"error":"not a JSON object: invalid character 'o' in literal null (expecting 'u')"}`},
	} {
		if _, err := io.WriteString(conn, c.line+"\n"); err != nil {
			t.Fatal(err)
		}
		if answer, err := answers.ReadString('\n'); err != nil || strings.TrimSpace(answer) != c.answer {
			t.Errorf("%s: %s %v", c.line, answer, err)
		}
	}
}

// A line that is too long is refused. The next command is executed.
func TestLongLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control")
	socket := listen(t, path)
	go socket.Serve(Commands{"hello": func([]byte) any { return OK }})
	for _, c := range []struct {
		bytes int
		ok    bool
	}{{70_000, true}, {maxLineBytes, true}, {maxLineBytes + 1, false}, {3 * maxLineBytes, false}} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		command := `{"command": "hello", "x": "`
		command += strings.Repeat("x", c.bytes-len(command)-len("\"}\n")) + "\"}\n"
		answers := json.NewDecoder(conn)
		for _, line := range []string{command, "{\"command\": \"hello\"}\n"} {
			if _, err := io.WriteString(conn, line); err != nil {
				t.Fatal(err)
			}
			var answer Reply
			if err := answers.Decode(&answer); err != nil || answer.OK != (c.ok || len(line) < 100) {
				t.Errorf("%d bytes: %+v, %v", len(line), answer, err)
			}
		}
	}
}
