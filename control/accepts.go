package control

import (
	"fmt"
	"slices"
	"strings"
)

// Can is what one launch can carry out.
type Can struct {
	Vendor   string   // the token of x.{vendor}.control.instruct
	Respond  bool     // some of its requests can be answered through us
	Process  bool     // its process tree is ours: cancel, pause, resume
	Instruct bool     // it reads a text on its way
	More     []string // types that its adapter carries out beyond these
}

// Accepts computes hello's capabilities.control.accepts (AEP-0004 §4.2): what
// the launch can do, as shaped by the operator's words. allow and deny hold
// verbs (respond, cancel, pause, resume, instruct, or a vendor's), whole types,
// or "*". What can be done is accepted unless denied, but instruct, which is
// accepted only when allowed by its name. Of "*" and a name the name counts; of
// the same name in both, deny does. Nothing is accepted that cannot be done:
// notes has a line for each allowed verb that is not. An unknown verb is an
// error.
func Accepts(can Can, allow, deny []string) (types, notes []string, err error) {
	able := map[string]bool{}
	for _, t := range can.More {
		able[t] = true
	}
	if can.Respond {
		able[Respond] = true
	}
	if can.Process {
		able[Cancel], able[Pause], able[Resume] = true, true, true
	}
	if can.Instruct {
		able[Instruct(can.Vendor)] = true
	}
	known := []string{Respond, Cancel, Pause, Resume, Instruct(can.Vendor)}
	for _, t := range can.More {
		if !slices.Contains(known, t) {
			known = append(known, t)
		}
	}
	slices.Sort(known[5:])
	yes, err := verbs("allow", allow, known)
	if err != nil {
		return nil, nil, err
	}
	no, err := verbs("deny", deny, known)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range known {
		if yes[t] && !able[t] && !no[t] {
			notes = append(notes, fmt.Sprintf("%s is allowed, but cannot be carried out here", verb(t)))
		}
		ok := !isInstruct(t)
		switch {
		case no[t]:
			ok = false
		case yes[t]:
			ok = true
		case no["*"]:
			ok = false
		}
		if ok && able[t] {
			types = append(types, t)
		}
	}
	return types, notes, nil
}

// verbs reads an operator's words as types.
func verbs(flag string, words, known []string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, w := range words {
		w = strings.TrimSpace(w)
		if w == "*" {
			out["*"] = true
			continue
		}
		i := slices.IndexFunc(known, func(t string) bool {
			return w == t || w == verb(t) || t == Respond && w == "respond"
		})
		if i < 0 {
			var names []string
			for _, t := range known {
				names = append(names, strings.TrimPrefix(verb(t), "attention."))
			}
			return nil, fmt.Errorf("--%s %q: no such verb; there are %s and *", flag, w, strings.Join(names, ", "))
		}
		out[known[i]] = true
	}
	return out, nil
}
