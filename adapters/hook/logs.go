package hook

import "aep-wrap/adapters"

// LogsAt gives the session's logs of which the hooks name the paths, in the
// members at these paths.
func LogsAt(members ...Path) func(adapters.Moment) []adapters.LogFile {
	return func(m adapters.Moment) (out []adapters.LogFile) {
		in := In{Moment: &m, at: m.Payload}
		session := in.Str("session_id")
		if m.Channel != adapters.Hook || session == "" {
			return nil
		}
		for _, p := range members {
			if file := in.Str(p); file != "" {
				out = append(out, adapters.LogFile{Path: file, Session: session})
			}
		}
		return out
	}
}
