package event

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Filter is a compiled attr-match filter (AEP-0003 §6). It is safe for use by
// several goroutines.
type Filter struct {
	clauses []func(*Header) bool
}

// Match says whether every predicate matches. The nil filter matches every
// event, as {} does.
func (f *Filter) Match(h *Header) bool {
	if f == nil {
		return true
	}
	for _, clause := range f.clauses {
		if !clause(h) {
			return false
		}
	}
	return true
}

// filterable are the core attributes that a filter may name and whose values
// are plain strings; "" is an attribute that the event omits.
var filterable = map[string]func(*Header) string{
	"id":      func(h *Header) string { return h.ID },
	"subject": func(h *Header) string { return h.Subject },
	"source":  func(h *Header) string { return h.Source },
	"agent":   func(h *Header) string { return h.Agent },
	"session": func(h *Header) string { return h.Session },
	"run":     func(h *Header) string { return h.Run },
	"step":    func(h *Header) string { return h.Step },
	"cause":   func(h *Header) string { return h.Cause },
	"capture": func(h *Header) string { return h.Capture.String() },
}

// CompileFilter reads an attr-match filter. It fails closed: a key that is no
// filterable attribute nor a legal extension's name, and a predicate outside
// the dialect's grammar, are errors, never a filter that matches more.
func CompileFilter(raw []byte) (*Filter, error) {
	members, err := ParseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	keys := make([]string, 0, len(members))
	for key := range members {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	f := &Filter{clauses: make([]func(*Header) bool, 0, len(keys))}
	for _, key := range keys {
		clause, err := compileClause(key, members[key])
		if err != nil {
			return nil, fmt.Errorf("filter: %s: %w", quote(key), err)
		}
		f.clauses = append(f.clauses, clause)
	}
	return f, nil
}

func compileClause(key string, predicate any) (func(*Header) bool, error) {
	if ops, ok := predicate.(map[string]any); ok {
		if key != "severity" {
			return nil, fmt.Errorf("an object is a predicate of severity only")
		}
		return compileSeverity(ops)
	}
	values, err := scalars(predicate)
	if err != nil {
		return nil, err
	}
	if key == "type" {
		return compileType(values)
	}
	for v := range values {
		if s, ok := v.(string); ok && strings.Contains(s, "*") {
			return nil, fmt.Errorf("%s: patterns are for type only", quote(s))
		}
	}
	switch get, core := filterable[key]; {
	case core:
		set := stringsOf(values)
		return func(h *Header) bool { return set.has(get(h)) }, nil
	case key == "severity":
		set := stringsOf(values)
		return func(h *Header) bool { return set.has(h.Severity.String()) }, nil
	case key == "epoch":
		set := make(map[int64]bool)
		for v := range values {
			if n, ok := v.(int64); ok {
				set[n] = true
			}
		}
		return func(h *Header) bool { return set[h.Epoch] }, nil
	case extensionName(key):
		return func(h *Header) bool {
			v, ok := h.Ext[key]
			if !ok {
				return false
			}
			if v, ok = scalar(v); !ok {
				return false
			}
			_, ok = values[v]
			return ok
		}, nil
	case slices.Contains(coreNames, key):
		return nil, fmt.Errorf("not filterable")
	}
	return nil, fmt.Errorf("no attribute, and no extension's name: 1 to 20 of a-z and 0-9")
}

// scalars reads a scalar, or an array of one or more, into the values that
// match, in the form that extension attributes are held in.
func scalars(predicate any) (map[any]struct{}, error) {
	list, ok := predicate.([]any)
	if !ok {
		list = []any{predicate}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("an inclusion array has at least one value")
	}
	values := make(map[any]struct{}, len(list))
	for _, v := range list {
		switch v.(type) {
		case string, bool, json.Number:
		default:
			return nil, fmt.Errorf("%s is no predicate; want a string, an integer, a boolean, or an array of them", kindOf(v))
		}
		s, ok := scalar(v)
		if !ok {
			return nil, fmt.Errorf("a number with a fraction matches nothing")
		}
		values[s] = struct{}{}
	}
	return values, nil
}

// stringSet is a set of strings that an attribute may equal. Attributes are
// strings that are not empty, so what else a filter lists matches none.
type stringSet struct {
	few  []string
	many map[string]struct{} // instead of few, when walking would be slow
}

func stringsOf(values map[any]struct{}) stringSet {
	var s stringSet
	for v := range values {
		if v, ok := v.(string); ok && v != "" {
			s.few = append(s.few, v)
		}
	}
	if len(s.few) > 8 {
		s.many = make(map[string]struct{}, len(s.few))
		for _, v := range s.few {
			s.many[v] = struct{}{}
		}
		s.few = nil
	}
	return s
}

func (s *stringSet) has(v string) bool {
	if s.many != nil {
		_, ok := s.many[v]
		return ok
	}
	return slices.Contains(s.few, v)
}

// compileType reads types and patterns: p.* matches what begins with p and a
// dot.
func compileType(values map[any]struct{}) (func(*Header) bool, error) {
	exact, prefixes := map[any]struct{}{}, map[any]struct{}{}
	for v := range values {
		s, _ := v.(string)
		prefix, pattern := strings.CutSuffix(s, ".*")
		switch {
		case !pattern && !strings.Contains(s, "*"):
			exact[v] = struct{}{}
		case !pattern || prefix == "" || strings.Contains(prefix, "*"):
			return nil, fmt.Errorf("%s is no pattern; want an exact type, or a prefix and .*", quote(s))
		default:
			prefixes[prefix] = struct{}{}
		}
	}
	types, begins := stringsOf(exact), stringsOf(prefixes)
	return func(h *Header) bool {
		if types.has(h.Type) {
			return true
		}
		for i := range len(h.Type) {
			if h.Type[i] == '.' && i+1 < len(h.Type) && begins.has(h.Type[:i]) {
				return true
			}
		}
		return false
	}, nil
}

func compileSeverity(ops map[string]any) (func(*Header) bool, error) {
	if len(ops) == 0 {
		return nil, fmt.Errorf("want gte, lte or both")
	}
	least, most := Debug, Critical
	for op, v := range ops {
		name, _ := v.(string)
		level, err := ParseSeverity(name)
		if err != nil {
			return nil, fmt.Errorf("%s: want one of %s", quote(op), strings.Join(severityNames[:], ", "))
		}
		switch op {
		case "gte":
			least = level
		case "lte":
			most = level
		default:
			return nil, fmt.Errorf("%s is no comparison; want gte or lte", quote(op))
		}
	}
	return func(h *Header) bool { return h.Severity >= least && h.Severity <= most }, nil
}
