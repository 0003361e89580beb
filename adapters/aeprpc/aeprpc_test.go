package aeprpc

import (
	"testing"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
)

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{Adapter: Adapter(), Pins: []string{"pins.json"}, Moments: adapters.Server})
}

func FuzzMap(f *testing.F) {
	adaptertest.Fuzz(f, Adapter(), []adapters.Moment{{Channel: adapters.Server, Name: "tool.called", Payload: map[string]any{
		"event_id": "evt_1", "run_id": "run_1", "type": "tool.called", "payload": map[string]any{"tool": "x"},
	}}})
}
