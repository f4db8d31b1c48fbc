package coalesce

import (
	"crypto/tls"
	"os"
)

// logKeys makes config and its clones append the keys of their connections to the file SSLKEYLOGFILE, as browsers do. The
// keys decrypt captures of the testbed.
func logKeys(config *tls.Config) error {
	name := os.Getenv("SSLKEYLOGFILE")
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	config.KeyLogWriter = file
	return nil
}
