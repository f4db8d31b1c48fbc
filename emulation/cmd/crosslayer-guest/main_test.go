//go:build linux

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJobOfAnotherVersionIsRefused(t *testing.T) {
	for name, line := range map[string]string{
		"no command":     `{"folder": "/"}` + "\n",
		"unknown member": `{"command": ["/bin/true"], "argv": []}` + "\n",
		"no JSON":        "command\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := takeJob(written(t, line))
			if err == nil || !strings.Contains(err.Error(), "make setup") {
				t.Errorf("takeJob: %v; want an error that names `make setup`", err)
			}
		})
	}
}

func TestStandardInputFollowsTheJob(t *testing.T) {
	job, err := takeJob(written(t, `{"command": ["/bin/cat"], "given": true}`+"\nfirst\nsecond\n"))
	if err != nil {
		t.Fatal(err)
	}
	if input, err := io.ReadAll(job.file); err != nil || string(input) != "first\nsecond\n" {
		t.Errorf("standard input: %q, %v", input, err)
	}
}

func written(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
