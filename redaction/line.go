package redaction

import (
	"fmt"

	"aep-wrap/event"
)

// Line is another sender's event as the session's log may hold it: at the
// ceiling of its type, and with its data through the pipeline, as if it were
// sealed here. Nothing else of it changes, and where nothing has to, the very
// bytes come back.
func (g *Gate) Line(line []byte) ([]byte, error) {
	e, err := event.Parse(line)
	if err != nil {
		return nil, fmt.Errorf("gate: another sender's event: %w", err)
	}
	ceiling := g.policy.Level(e.Type)
	if line, err = DownlevelLine(line, ceiling); err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	e = Downlevel(e, ceiling)
	if e.Capture >= event.Full || len(e.Data) == 0 {
		return line, nil
	}
	before, err := event.ParseObject(e.Data)
	if err != nil {
		return nil, fmt.Errorf("gate: another sender's event: %w", err)
	}
	after, found := g.pipe.Load().ExplainValue(before)
	if len(found) == 0 {
		return line, nil
	}
	e.Data = event.AppendValue(nil, after)
	return e.AppendJSON(nil), nil
}
