package hook

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"aep-wrap/adapters"
)

// A Path says where in a native payload a value stands: names separated by
// dots, numbers for the places of an array, "|" between alternatives of which
// the first that is there counts. A path that starts with "$." is one of the
// whole payload also inside Each. A backslash keeps a dot in a name:
// `session\.id`.
type Path = string

type steps struct {
	root bool
	keys []string
}

type paths []steps

func parse(p Path) paths {
	if p == "" {
		return nil
	}
	var out paths
	for _, alt := range strings.Split(p, "|") {
		s := steps{}
		if alt, s.root = strings.CutPrefix(alt, "$."); alt == "" {
			panic("hook: empty path in " + strconv.Quote(p))
		}
		for _, k := range strings.Split(strings.ReplaceAll(alt, `\.`, "\x00"), ".") {
			s.keys = append(s.keys, strings.ReplaceAll(k, "\x00", "."))
		}
		out = append(out, s)
	}
	return out
}

func walk(v any, keys []string) (any, bool) {
	for _, k := range keys {
		switch o := v.(type) {
		case map[string]any:
			next, ok := o[k]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(k)
			if err != nil || i < 0 || i >= len(o) {
				return nil, false
			}
			v = o[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// In is a native payload as facts see it.
type In struct {
	Moment *adapters.Moment
	Vendor string
	at     any // what paths start from: the payload, or an element of Each
}

func (in *In) get(ps paths) (any, bool) {
	for i, p := range ps {
		from := in.at
		if p.root {
			from = in.Moment.Payload
		}
		if m, ok := from.(map[string]any); ok && len(p.keys) == 1 { // the common case
			if v, ok := m[p.keys[0]]; ok && (v != nil || i == len(ps)-1) {
				return v, true
			}
			continue
		}
		if v, ok := walk(from, p.keys); ok && (v != nil || i == len(ps)-1) {
			return v, true
		}
	}
	return nil, false
}

// Get gives the value at a path, or nil.
func (in *In) Get(p Path) any {
	v, _ := in.get(parse(p))
	return v
}

// Str gives the string at a path, or "".
func (in *In) Str(p Path) string {
	s, _ := in.Get(p).(string)
	return s
}

func (in *In) str(ps paths) string {
	v, _ := in.get(ps)
	s, _ := v.(string)
	return s
}

// Order gives the names of the members of the object at a path in the order in
// which they came. It is nil where the payload's bytes are not at hand; only
// paths of the whole payload are known.
func (in *In) Order(p Path) []string {
	for _, s := range parse(p) {
		if keys := order(in.Moment.Raw, s.keys); keys != nil {
			return keys
		}
	}
	return nil
}

func order(raw []byte, keys []string) []string {
	d := json.NewDecoder(bytes.NewReader(raw))
	for _, k := range keys {
		if !enter(d, k) {
			return nil
		}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	names := []string{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil
		}
		name, _ := t.(string)
		names = append(names, name)
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return nil
		}
	}
	return names
}

// enter goes into the member of the object that comes next.
func enter(d *json.Decoder, member string) bool {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return false
		}
		if t == member {
			return true
		}
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return false
		}
	}
	return false
}

// Named takes a moment's native name from its payload: what stands at each of
// the paths, from the general to the particular, with a stroke between.
func Named(paths ...Path) func(*In) string {
	return func(in *In) string {
		var words []string
		for _, p := range paths {
			if s := in.Str(p); s != "" {
				words = append(words, s)
			}
		}
		return strings.Join(words, "/")
	}
}
