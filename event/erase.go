package event

// Erased is what is left of an event that was erased: its id, its type and its
// place, so that nothing which counts on them reads astray.
func Erased(h Header) Event {
	return Event{Header: Header{
		ID: h.ID, Type: h.Type, Time: h.Time, Source: h.Source, Agent: h.Agent, Session: h.Session, Run: h.Run,
		Sequenced: h.Sequenced, Epoch: h.Epoch, Seq: h.Seq, Severity: h.Severity, Capture: None,
	}}
}
