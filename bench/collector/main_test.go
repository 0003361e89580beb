package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"aep-wrap/collector"
)

const token = "bench-token"

// The generator measures what it says it does: of a collector in this process,
// for a moment.
func TestEveryMeasurement(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- collector.New(collector.Config{Token: token}).Serve(ctx, l) }()
	defer func() { stop(); <-done }()

	var out bytes.Buffer
	err = run([]string{"-url", "http://" + l.Addr().String(), "-token", token, "-json", "-pid", strconv.Itoa(os.Getpid()),
		"-time", "300ms", "-subscribers", "6", "-idle", "10"}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	got := map[string]figure{}
	for line := range strings.Lines(out.String()) {
		var f figure
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		if f.Value < 0 || f.Unit == "" {
			t.Errorf("%+v", f)
		}
		got[f.Name] = f
	}
	for _, name := range []string{"memory as it is", "post-1000x1 events", "post-1x8 events", "latency p99", "fan-out p99",
		"fan-out processor time per delivery", "ws-emit events", "control p99", "replay 10,000 events", "floor one TCP write of"} {
		found := false
		for have, f := range got {
			found = found || strings.HasPrefix(have, name) && f.Value >= 0
		}
		if !found {
			t.Errorf("there is no %s in\n%s", name, out.String())
		}
	}
}

func TestWhatItIsGiven(t *testing.T) {
	for _, args := range [][]string{{}, {"-url", "https://x"}, {"-url", "nothing"}, {"-nothing"}} {
		if err := run(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q passes", args)
		}
	}
}
