package redaction

import (
	"encoding/base64"
	"net/url"
	"strings"
)

const (
	minSecret = 8 // shorter values of the environment are words
	minListed = 4 // the operator knows what is listed
)

// envTails end the names of environment variables that hold secrets.
var envTails = [...]string{"TOKEN", "KEY", "SECRET", "PASS", "PASSWORD", "PASSWD", "CREDENTIALS"}

// ChildSecrets are the sensitive values of a child's environment: those whose
// names end in TOKEN, KEY, SECRET, PASS, PASSWORD, PASSWD or CREDENTIALS or
// are a credential's otherwise, those of the listed names, and the passwords in
// URLs under any name. Values that are words, paths, names of users and hosts
// or the like are left out: hiding them everywhere would hide what is said.
func ChildSecrets(env []string, names []string) []Secret {
	listed := map[string]bool{}
	for _, n := range names {
		listed[n] = true
	}
	common := map[string]bool{}
	for _, kv := range env {
		switch k, v, _ := strings.Cut(kv, "="); k {
		case "USER", "LOGNAME", "USERNAME", "HOSTNAME", "HOST", "HOME", "SHELL", "LANG", "TERM", "PWD", "OLDPWD", "COMPUTERNAME", "SUDO_USER", "TZ":
			common[v] = true
		}
	}
	var ns words
	var out []Secret
	seen := map[string]bool{}
	add := func(name, value string) {
		if !seen[value] {
			seen[value] = true
			out = append(out, Secret{name, value})
		}
	}
	for _, kv := range env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			continue
		}
		v = strings.TrimSpace(v)
		switch {
		case listed[k]:
			if len(v) >= minListed && !isLiteral(v) {
				add(k, v)
			}
			continue
		case len(v) < minSecret:
			continue
		}
		if pw := urlPassword(v); len(pw) >= minSecret && !common[pw] {
			add(k, pw)
			if d, err := url.PathUnescape(pw); err == nil && d != pw {
				add(k, d)
			}
		}
		if !sensitive(k, &ns) || common[v] || !worthHiding(v) {
			continue
		}
		add(k, v)
		// A value of several lines is seen line by line.
		if strings.IndexByte(v, '\n') >= 0 {
			for l := range strings.SplitSeq(v, "\n") {
				if l = strings.TrimSpace(l); len(l) >= 24 && !strings.HasPrefix(l, "-----") {
					add(k, l)
				}
			}
		}
	}
	return out
}

func sensitive(name string, ns *words) bool {
	up := strings.ToUpper(name)
	for _, t := range envTails {
		if strings.HasSuffix(up, t) {
			return true
		}
	}
	return len(name) < maxName && ns.classify(name, "").grade >= firm
}

// worthHiding: the stop list.
func worthHiding(v string) bool {
	switch {
	case isLiteral(v), inFold(envWords, v), isPath(v), strings.HasPrefix(v, "/") && strings.IndexByte(v, ' ') < 0 && !randomish(v), isVersion(v), isMask(v), isReference(v, 0):
		return false
	case isURL(v):
		return strings.IndexByte(v, '@') >= 0 || randomish(v[strings.Index(v, "://")+3:])
	case runOf(v, 0, digit) == len(v):
		return true
	}
	// A host's or a domain's name.
	if strings.IndexByte(v, '.') > 0 && runOf(v, 0, lower|digit|dash|dot|colon) == len(v) && !randomish(v) {
		return false
	}
	return true
}

var envWords = set(`production development localhost database password username changeme1_ postgres postgresql anonymous administrator
	disabled enabled required optional unlimited infinity localdomain keychain libsecret gnome-keyring
	secretservice wincred osxkeychain pass-store ssh-agent gpg-agent`)

// urlPassword is the password in front of a URL's host, or "".
func urlPassword(v string) string {
	i := strings.Index(v, "://")
	if i < 0 || i > 24 {
		return ""
	}
	rest := v[i+3:]
	a := strings.IndexByte(rest, '@')
	if s := strings.IndexAny(rest, "/?# "); a < 0 || s >= 0 && s < a {
		return ""
	}
	_, pw, _ := strings.Cut(rest[:a], ":")
	return pw
}

// spellings are the ways in which a value may be written without being
// encoded: as it is, in a JSON string, in a URL.
func spellings(v string) []string {
	out := []string{v}
	add := func(f string) {
		for _, o := range out {
			if o == f {
				return
			}
		}
		out = append(out, f)
	}
	if strings.ContainsAny(v, "\"\\\n\r\t/<>&") {
		j := jsonEscape(v, false)
		add(j)
		add(jsonEscape(v, true))
		add(jsonEscape(j, false))
		add(strings.ReplaceAll(j, "/", `\/`))
	}
	if q := url.QueryEscape(v); q != v {
		add(q)
		add(url.PathEscape(v))
		add(lowerHex(q))
		add(strings.ReplaceAll(q, "+", "%20"))
		add(lowerHex(strings.ReplaceAll(q, "+", "%20")))
	}
	if strings.IndexByte(v, '\'') >= 0 {
		add(strings.ReplaceAll(v, "'", `'\''`))
		add(strings.ReplaceAll(v, "'", `'"'"'`))
	}
	if strings.ContainsAny(v, "<>&\"'") {
		add(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\"", "&quot;", "'", "&#39;").Replace(v))
	}
	return out
}

// encodings are spellings, and base64 at every alignment: what stands in front
// of the value (user:) shifts it.
func encodings(v string) []string {
	out := spellings(v)
	for shift := range 3 {
		raw := make([]byte, shift, shift+len(v))
		raw = append(raw, v...)
		e := base64.RawStdEncoding.EncodeToString(raw)
		first := (shift*8 + 5) / 6       // characters that hold bits of what is in front
		last := (shift + len(v)) * 8 / 6 // those that hold no bits of what follows
		if last-first < minSecret {
			continue
		}
		out = append(out, e[first:last])
		if u := base64.RawURLEncoding.EncodeToString(raw)[first:last]; u != e[first:last] {
			out = append(out, u)
		}
	}
	return out
}

func jsonEscape(v string, html bool) string {
	var b strings.Builder
	for i := range len(v) {
		switch c := v[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case html && (c == '<' || c == '>' || c == '&'):
			b.WriteString(`\u00`)
			b.WriteByte("0123456789abcdef"[c>>4])
			b.WriteByte("0123456789abcdef"[c&15])
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			b[i+1], b[i+2] = lowerByte(b[i+1]), lowerByte(b[i+2])
		}
	}
	return string(b)
}
