//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// run starts the command and stands between it and the host until it ends; what it left behind is killed then.
func run(j *job, line *console) (int, error) {
	s, err := openStreams(j, line)
	if err != nil {
		return 0, err
	}
	attributes := &syscall.SysProcAttr{Setsid: true}
	if s.terminal != nil {
		attributes.Setctty = true
		for fd, is := range j.Terminal {
			if is {
				attributes.Ctty = fd
			}
		}
	}
	if j.UID != 0 || j.GID != 0 {
		attributes.Credential = &syscall.Credential{Uid: j.UID, Gid: j.GID, Groups: j.Groups}
	}
	process, err := os.StartProcess(j.Command[0], j.Command, &os.ProcAttr{
		Dir: j.Folder, Env: j.Environment, Files: s.child[:], Sys: attributes,
	})
	if err != nil {
		var fault *os.PathError
		if errors.As(err, &fault) {
			return 0, fmt.Errorf("%s: %w", fault.Path, fault.Err)
		}
		return 0, err
	}
	s.closeChild()
	go s.obey(line, process.Pid)
	status := reap(process.Pid)
	_ = syscall.Kill(-1, syscall.SIGKILL)
	s.copying.Wait()
	return status, nil
}

// reap waits for a process, and for every orphan meanwhile; 128 + its signal where one ended it.
func reap(child int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR || pid != child && err == nil:
		case err != nil:
			return 1
		case status.Signaled():
			return 128 + int(status.Signal())
		default:
			return status.ExitStatus()
		}
	}
}

// streams are both ends of the command's standard streams.
type streams struct {
	child    [3]*os.File
	input    *os.File
	terminal *os.File // ours; nil without
	copying  sync.WaitGroup
}

func openStreams(j *job, line *console) (*streams, error) {
	s := &streams{}
	var childTerminal *os.File
	if j.Terminal[0] || j.Terminal[1] || j.Terminal[2] {
		var err error
		if s.terminal, childTerminal, err = openTerminal(j); err != nil {
			return nil, err
		}
		kind := byte('1')
		if !j.Terminal[1] {
			kind = '2'
		}
		s.copy(s.terminal, line, kind)
	}
	for fd, is := range j.Terminal {
		if is {
			s.child[fd] = childTerminal
			continue
		}
		if fd == 0 && j.Given {
			s.child[fd] = j.file
			continue
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if fd == 0 {
			s.child[fd], s.input = reader, writer
		} else {
			s.child[fd] = writer
			s.copy(reader, line, strconv.Itoa(fd)[0])
		}
	}
	if j.Terminal[0] {
		s.input = s.terminal
	}
	return s, nil
}

// copy sends what is read, until its end, as frames of one kind.
func (s *streams) copy(from io.Reader, line *console, kind byte) {
	s.copying.Add(1)
	go func() {
		defer s.copying.Done()
		buffer := make([]byte, 1<<15)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				line.send(kind, buffer[:n])
			}
			if err != nil { // EIO of a terminal: nobody has its other end any more
				return
			}
		}
	}()
}

func (s *streams) closeChild() {
	for _, file := range s.child {
		_ = file.Close() // a terminal's more than once
	}
}

// obey does what the host says, until it says no more.
func (s *streams) obey(line *console, child int) {
	for {
		kind, payload, err := line.receive()
		if err != nil {
			powerOff() // the host is gone
		}
		switch kind {
		case '0':
			if len(payload) == 0 && s.terminal != s.input {
				_ = s.input.Close()
				continue
			}
			go func() { // a command that does not read must not keep signals from coming
				_, _ = s.input.Write(payload)
				line.send('A', nil)
			}()
		case 'S':
			if number, err := strconv.Atoi(string(payload)); err == nil {
				_ = syscall.Kill(child, syscall.Signal(number))
			}
		case 'W':
			if s.terminal != nil && len(payload) == 4 {
				_ = resize(s.terminal, [2]uint16{binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])})
			}
		}
	}
}
