package collector

import (
	"embed"
	"net/http"
	"path"
	"strconv"
)

//go:embed page
var pageFiles embed.FS

// pageTypes are the page's files that are served, and as what.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// pages are the paths of the page that people watch. It holds no data, so it
// needs no token: what it shows it asks for with the visitor's own.
func pages() map[string]http.HandlerFunc {
	served := map[string]http.HandlerFunc{}
	files, err := pageFiles.ReadDir("page")
	if err != nil {
		panic(err) // the files are part of the binary
	}
	for _, f := range files {
		body, err := pageFiles.ReadFile("page/" + f.Name())
		if err != nil {
			panic(err)
		}
		contentType, ok := pageTypes[path.Ext(f.Name())]
		if !ok {
			continue
		}
		url := "/page/" + f.Name()
		if f.Name() == "index.html" {
			url = "/"
		}
		served[url] = func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Content-Type", contentType)
			h.Set("Content-Length", strconv.Itoa(len(body)))
			h.Set("Cache-Control", "no-cache")
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("X-Frame-Options", "DENY")
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
			h.Set("Cross-Origin-Resource-Policy", "same-origin")
			_, _ = w.Write(body)
		}
	}
	return served
}

// pagePolicy lets the page load its own files and talk to its own origin. Text
// never becomes markup: what would make it so is refused by the browser.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
