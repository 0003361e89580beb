package session

import (
	"time"

	"aep-wrap/event"
)

// twin says whether a tool's request is one that another channel of the
// runtime has told already, of which one gives the call's id and the other
// does not. Drafts of such a runtime say by their Link what the tool looks
// like; each telling is matched once, the oldest first. From then on the tool
// is known by its call id too.
func (s *Session) twin(d *event.Draft, f *facts) bool {
	if d.Type != "tool.requested" || d.Link.Tool == "" {
		return false
	}
	if f.call != "" && s.st.seen.has(event.DeriveID(s.cfg.Agent, s.cfg.Session, d.Type, f.call)) {
		return true // read before
	}
	t := s.lookalike(d.Link, f.call != "")
	if t == nil {
		t = s.lookedAlike(d, f.call != "")
	}
	if t == nil {
		return false
	}
	t.twin = true
	if f.call == "" {
		return true
	}
	s.st.rename(t, f.call)
	s.st.seen.addAt(event.DeriveID(s.cfg.Agent, s.cfg.Session, d.Type, f.call), d.Time)
	return true
}

// lookalike finds the oldest tool, open or past, that the other channel told
// and this one did not: by its name and input, or, where its input was changed
// on its way, by its name, if that can mean one open tool only.
func (s *Session) lookalike(l event.Link, byCall bool) (found *tool) {
	var named *tool
	n := 0
	for _, list := range []*table[*tool]{s.st.past, s.st.tools} {
		list.all(func(_ string, t *tool) bool {
			if t.twin || !t.live || t.name != l.Tool || byCall != (t.call == "") {
				return true
			}
			if t.args == l.Args {
				found = t
				return false
			}
			if list == s.st.tools {
				named, n = t, n+1
			}
			return true
		})
		if found != nil {
			return found
		}
	}
	if n == 1 {
		return named
	}
	return nil
}

// sameMoment is how far apart two channels tell of one request.
const sameMoment = 2 * time.Second

// lookedAlike finds the tool that an earlier process told of at that time.
func (s *Session) lookedAlike(d *event.Draft, byCall bool) (found *tool) {
	for _, list := range []*table[*tool]{s.st.past, s.st.tools} {
		list.all(func(_ string, t *tool) bool {
			if !t.twin && !t.live && t.name == d.Link.Tool && t.args == d.Link.Args && byCall == (t.call == "") && t.at.Sub(d.Time).Abs() < sameMoment {
				found = t
			}
			return found == nil
		})
	}
	return found
}

// echoed finds the tool whose outcome the channel that knows its call was
// ahead to tell: it is told once more, without the call.
func (s *Session) echoed(l event.Link) (found *tool) {
	s.st.past.all(func(_ string, t *tool) bool {
		if t.twin && t.outcome && !t.echo && t.name == l.Tool && t.args == l.Args {
			found = t
		}
		return found == nil
	})
	if found != nil {
		found.echo = true
	}
	return found
}

// rename gives a tool the call id that another channel knew.
func (st *State) rename(t *tool, call string) {
	old := callKey(t.call, t.id)
	t.call = call
	for _, list := range []*table[*tool]{st.tools, st.past} {
		if x, ok := list.get(old); ok && x == t {
			list.del(old)
			list.put(call, t)
		}
	}
	st.requests.all(func(_ string, r *request) bool {
		if r.tool == t.id {
			r.call = call
		}
		return true
	})
}
