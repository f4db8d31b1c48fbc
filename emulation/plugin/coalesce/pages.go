package coalesce

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// manifest is the part of a page's manifest.json that the server uses.
type manifest struct {
	Page      string             `json:"page"`
	Host      string             `json:"host"`
	Aliases   []string           `json:"aliases"`
	Resources []manifestResource `json:"resources"`
}

type manifestResource struct {
	Path            string `json:"path"`
	File            string `json:"file"`
	Host            string `json:"host"` // host of another origin; empty for the page's hosts
	ContentType     string `json:"content_type"`
	ContentEncoding string `json:"content_encoding"`
	WireBytes       int    `json:"wire_bytes"`
}

// resource is a complete response.
type resource struct {
	header map[string][]string
	body   []byte
}

// site maps host name and normalized path to the resource.
type site map[string]map[string]*resource

// loadSite reads all pages in the subfolders of folder into memory.
func loadSite(folder string) (site, error) {
	if _, err := os.Stat(folder); err != nil {
		return nil, fmt.Errorf("pages: %w", err)
	}
	manifests, err := filepath.Glob(filepath.Join(folder, "*", "manifest.json"))
	if err != nil {
		return nil, fmt.Errorf("pages: %w", err)
	}
	if len(manifests) == 0 {
		return nil, fmt.Errorf("pages: no PAGE/manifest.json in %s: build the pages first", folder)
	}
	s := site{}
	for _, path := range manifests {
		if err := s.load(path); err != nil {
			return nil, fmt.Errorf("pages: %s: %w", path, err)
		}
	}
	return s, nil
}

func (s site) load(path string) error {
	text, err := os.ReadFile(path) // #nosec G304 -- the path is given by the configuration
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	if m.Host == "" || len(m.Resources) == 0 {
		return fmt.Errorf("the page needs a host and resources")
	}
	for _, r := range m.Resources {
		loaded, err := r.load(filepath.Dir(path))
		if err != nil {
			return fmt.Errorf("resource %q: %w", r.Path, err)
		}
		hosts := append([]string{m.Host}, m.Aliases...)
		if r.Host != "" {
			hosts = []string{r.Host}
		}
		for _, host := range hosts {
			if err := s.add(strings.ToLower(host), r.Path, loaded); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s site) add(host, path string, r *resource) error {
	path = normalPath(path)
	if s[host] == nil {
		s[host] = map[string]*resource{}
	}
	if s[host][path] != nil {
		return fmt.Errorf("https://%s%s is served by another resource already", host, path)
	}
	s[host][path] = r
	return nil
}

// normalPath normalizes the path of a URL (RFC 3986, section 6.2.2). It decodes escapes of unreserved characters, writes
// other escapes in upper case, and escapes every character that is not allowed in a path. It also escapes quotes,
// parentheses and &, which have a meaning in documents. lib/crosslayer/pages/_urls.py has the same rule.
func normalPath(path string) string {
	normal := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		c, kept := path[i], false
		if c == '%' && i+2 < len(path) {
			if value, err := strconv.ParseUint(path[i+1:i+3], 16, 8); err == nil {
				c, kept = byte(value), !unreserved(byte(value))
				i += 2
			}
		}
		if kept || !unreserved(c) && !strings.ContainsRune("!$*+,;=:@/", rune(c)) {
			normal = fmt.Appendf(normal, "%%%02X", c)
		} else {
			normal = append(normal, c)
		}
	}
	return string(normal)
}

// unreserved reports whether a character means the same with and without an escape (RFC 3986, section 2.3).
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-._~", rune(c))
}

func (r manifestResource) load(folder string) (*resource, error) {
	if !strings.HasPrefix(r.Path, "/") {
		return nil, fmt.Errorf("the path does not begin with a slash")
	}
	body, err := readInside(folder, r.File)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", r.File, err)
	}
	if len(body) != r.WireBytes {
		return nil, fmt.Errorf("file %q has %d bytes, the manifest says %d", r.File, len(body), r.WireBytes)
	}
	header := headerFor(r.ContentType, r.ContentEncoding, len(body))
	if r.Host != "" {
		header["Access-Control-Allow-Origin"] = []string{"*"} // browsers require it for fonts of another origin
	}
	return &resource{header: header, body: body}, nil
}

// readInside reads a file below folder. Names and symbolic links that lead out of it are errors.
func readInside(folder, name string) ([]byte, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return root.ReadFile(name)
}

// headerFor returns the header of a page's response. It forbids caching, so that each load fetches everything.
func headerFor(contentType, contentEncoding string, length int) map[string][]string {
	header := map[string][]string{
		"Content-Type":        {contentType},
		"Content-Length":      {strconv.Itoa(length)},
		"Cache-Control":       {"no-store"},
		"Timing-Allow-Origin": {"*"}, // lets scripts read timings of resources of other origins
	}
	if contentEncoding != "" {
		header["Content-Encoding"] = []string{contentEncoding}
	}
	return header
}
