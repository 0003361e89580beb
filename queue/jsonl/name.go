package jsonl

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"strings"
)

// maxName leaves room for the ends that are added to a name within the 255
// bytes that file systems give.
const maxName = 160

// foldsCase says that the file system takes "A" and "a" for one name.
const foldsCase = runtime.GOOS == "darwin" || runtime.GOOS == "windows"

// SafeName makes any name fit to be a file's, readable where it can be, and
// different for different names. A name of ordinary characters stays as it is;
// any other is cleaned and gets a "~" with a hash of the original, which no
// unchanged name has.
func SafeName(s string) string {
	clean := strings.Map(func(r rune) rune {
		if ordinary(r) {
			return r
		}
		return '_'
	}, s)
	plain := clean == s && len(s) <= maxName && len(s) > 0 &&
		s[0] != '.' && s[0] != '-' && s[len(s)-1] != '.' && !reserved(s) &&
		!(foldsCase && strings.ToLower(s) != s)
	if plain {
		return s
	}
	h := sha256.Sum256([]byte(s))
	clean = strings.Trim(clean[:min(len(clean), 100)], ".-")
	if clean == "" || reserved(clean) {
		clean = "_" + clean
	}
	return clean + "~" + hex.EncodeToString(h[:16])
}

func ordinary(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

// reserved says that a system gives a name a meaning of its own, whatever
// follows its first dot.
func reserved(s string) bool {
	base, _, _ := strings.Cut(strings.ToLower(s), ".")
	switch base {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(base) == 4 && (base[:3] == "com" || base[:3] == "lpt") && base[3] >= '0' && base[3] <= '9'
}
