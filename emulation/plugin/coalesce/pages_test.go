package coalesce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writePage writes one page folder with a body of three bytes.
func writePage(t *testing.T, folder, name, text string) {
	t.Helper()
	page := filepath.Join(folder, name)
	if err := os.MkdirAll(page, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{"manifest.json": text, "body": "abc"} {
		if err := os.WriteFile(filepath.Join(page, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoadSite(t *testing.T) {
	folder := t.TempDir()
	writePage(t, folder, "one", `{"page": "one", "host": "One.example", "aliases": ["alias.one.example"], "origins": ["cdn.example"], "resources": [
		{"path": "/", "file": "body", "content_type": "text/html", "content_encoding": "gzip", "wire_bytes": 3},
		{"path": "/x", "file": "body", "content_type": "text/plain", "content_encoding": "", "wire_bytes": 3, "host": "cdn.example"}]}`)
	writePage(t, folder, "two", `{"page": "two", "host": "two.example", "resources": [{"path": "/", "file": "body", "content_type": "text/html", "wire_bytes": 3}]}`)
	pages, err := loadSite(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) != 4 || pages["one.example"]["/"] == nil || pages["alias.one.example"]["/"] == nil ||
		pages["two.example"]["/"] == nil || pages["cdn.example"]["/x"] == nil || pages["one.example"]["/x"] != nil {
		t.Errorf("hosts and paths: %v", pages)
	}
	root := pages["one.example"]["/"]
	if string(root.body) != "abc" || root.header["Content-Encoding"][0] != "gzip" || root.header["Content-Length"][0] != "3" {
		t.Errorf("resource %+v", root)
	}
	if _, ok := pages["two.example"]["/"].header["Content-Encoding"]; ok {
		t.Error("an encoding nobody asked for")
	}
	if allowed := pages["cdn.example"]["/x"].header["Access-Control-Allow-Origin"]; len(allowed) != 1 || allowed[0] != "*" {
		t.Errorf("a resource of another origin allows %v", allowed)
	}
	if _, ok := root.header["Access-Control-Allow-Origin"]; ok {
		t.Error("a resource of the page's own origin is open to others")
	}
}

func TestLoadSiteRefuses(t *testing.T) {
	resource := func(change ...string) string {
		text := `{"path": "/", "file": "body", "content_type": "text/html", "content_encoding": "", "wire_bytes": 3}`
		return strings.NewReplacer(change...).Replace(text)
	}
	page := func(resources ...string) string {
		return `{"page": "one", "host": "one.example", "resources": [` + strings.Join(resources, ", ") + `]}`
	}
	for name, c := range map[string]struct{ manifest, err string }{
		"cut off":       {page(resource())[:40], "unexpected end"},
		"no host":       {`{"resources": [` + resource() + `]}`, "needs a host"},
		"no resources":  {page(), "needs a host and resources"},
		"no such file":  {page(resource("body", "other")), "no such file"},
		"outside":       {page(resource("body", "../two/body")), "escapes"},
		"linked":        {page(resource("body", "link")), "escapes"},
		"wrong length":  {page(resource("3", "4")), "has 3 bytes, the manifest says 4"},
		"relative path": {page(resource(`"/"`, `"x"`)), "begin with a slash"},
		"twice":         {page(resource(), resource()), "served by another resource already"},
	} {
		folder := t.TempDir()
		writePage(t, folder, "one", c.manifest)
		if err := os.Symlink("/etc/hostname", filepath.Join(folder, "one", "link")); err != nil {
			t.Fatal(err)
		}
		_, err := loadSite(folder)
		if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), folder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := loadSite(t.TempDir()); err == nil || !strings.Contains(err.Error(), "build the pages first") {
		t.Errorf("empty folder: %v", err)
	}
	if _, err := loadSite(filepath.Join(t.TempDir(), "missing")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing folder: %v", err)
	}
}

func TestPathsHaveOneForm(t *testing.T) {
	for path, want := range map[string]string{
		"/a%20b.png":   "/a%20b.png",
		"/a b'c.png":   "/a%20b%27c.png",
		"/%c3%BC.png":  "/%C3%BC.png",
		"/\u00fc.png":  "/%C3%BC.png",
		"/d%22e":       "/d%22e",
		"/x%2fy":       "/x%2Fy",
		"/x/y":         "/x/y",
		"/%7Euser/%41": "/~user/A",
		"/a%3Ab":       "/a%3Ab",
		"/a:b@c":       "/a:b@c",
		"/50%":         "/50%25",
		"/%zz":         "/%25zz",
	} {
		if got := normalPath(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
		if again := normalPath(want); again != want {
			t.Errorf("%q is not in normal form: %q", want, again)
		}
	}
}

func TestLoadSiteTakesPathsInNormalForm(t *testing.T) {
	folder := t.TempDir()
	resource := `{"path": "/a b%7e", "file": "body", "content_type": "text/plain", "wire_bytes": 3}`
	writePage(t, folder, "one", `{"page": "one", "host": "one.example", "resources": [`+resource+`]}`)
	pages, err := loadSite(folder)
	if err != nil || pages["one.example"]["/a%20b~"] == nil {
		t.Errorf("%v %v", pages, err)
	}
}
