package coalesce

import (
	"crypto/tls"
	"os"
)

// logKeys makes config, and every clone of it, add the keys of its connections to the file that SSLKEYLOGFILE names, as
// browsers do. Whoever reads it reads what was said: it is for captures of a testbed.
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
