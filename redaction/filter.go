package redaction

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"aep-wrap/event"
)

// Filter runs a pipeline over a stream.
type Filter struct {
	Pipe *Pipeline
	// Explain, if set, hears of everything that was hidden: where it stood in
	// the input (a line, counted from 1, and the bytes of it) and by which
	// rule; for JSON the member's path instead of bytes. It never hears what.
	Explain func(line int, f Finding)
	// Idle is how long Text waits for more of what it holds before it writes
	// the lines that are complete; 0 is 200 ms.
	Idle time.Duration
}

const (
	window  = 1 << 20  // what Text looks at together
	longest = 16 << 20 // the longest line; a longer one is read in pieces
	holding = 64 << 10 // how far back something that has begun is held for its end
)

// Text copies src to dst, redacted. It works on windows of whole lines, and
// holds back what may go on in lines to come (a key without its end, a name
// whose value stands below), so memory is bounded. What was told to be a
// secret once stays hidden in all that follows.
func (f *Filter) Text(dst io.Writer, src io.Reader) error {
	idle := f.Idle
	if idle == 0 {
		idle = 200 * time.Millisecond
	}
	chunks := make(chan []byte)
	stop := make(chan struct{})
	defer close(stop)
	var readErr error
	go func() {
		defer close(chunks)
		for {
			b := make([]byte, 64<<10)
			n, err := src.Read(b)
			if n > 0 {
				select {
				case chunks <- b[:n]:
				case <-stop:
					return
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					readErr = err
				}
				return
			}
		}
	}()

	h := f.Pipe.hider(everything)
	line := 1
	var buf []byte
	whole := 0 // the end of buf's last whole line
	flush := func(n int) error {
		if n <= 0 {
			return nil
		}
		s := string(buf[:n])
		spans := h.addAgain(s, h.spans(s))
		spans = h.p.addPersonal(s, spans)
		if f.Explain != nil {
			f.explain(s, line, spans)
			line += strings.Count(s, "\n")
		}
		if _, err := io.WriteString(dst, render(s, spans)); err != nil {
			return err
		}
		buf = append(buf[:0], buf[n:]...)
		whole = max(0, whole-n)
		return nil
	}
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		select {
		case c, ok := <-chunks:
			if !ok {
				if err := flush(len(buf)); err != nil {
					return err
				}
				return readErr
			}
			if k := bytes.LastIndexByte(c, '\n'); k >= 0 {
				whole = len(buf) + k + 1
			}
			buf = append(buf, c...)
			for len(buf) >= window {
				n := settled(buf[:whole])
				if n == 0 && len(buf) < longest {
					break
				}
				if n == 0 { // one line without an end
					if n = bytes.LastIndexByte(buf[:len(buf)-holding], ' ') + 1; n == 0 {
						n = len(buf) - holding
					}
				}
				if err := flush(n); err != nil {
					return err
				}
			}
			timer.Reset(idle)
		case <-timer.C:
			if err := flush(settled(buf[:whole])); err != nil {
				return err
			}
		}
	}
}

func (f *Filter) explain(s string, line int, spans []span) {
	at := 0
	for _, sp := range spans {
		line += strings.Count(s[at:sp.start], "\n")
		at = sp.start
		b := strings.LastIndexByte(s[:sp.start], '\n') + 1
		f.Explain(line, Finding{Rule: sp.rule.ID, Start: sp.start - b, End: sp.end - b})
	}
}

// settled is how much of these lines can be judged without what follows: all
// but those at the end with which something begins that is not at its end.
func settled(lines []byte) int {
	n := len(lines)
	if n == 0 {
		return 0
	}
	s := string(lines[max(0, n-holding):])
	if hold := heldFrom(s); hold >= 0 {
		return n - len(s) + hold
	}
	return n
}

// heldFrom is where in the last lines something begins that may go on, or -1.
func heldFrom(s string) int {
	hold := -1
	from := func(i int) {
		i = strings.LastIndexByte(s[:i], '\n') + 1
		if hold < 0 || i < hold {
			hold = i
		}
	}
	for _, mark := range [...][2]string{{"-BEGIN ", "-END "}, {"- BEGIN ", "- END "}, {"Private-Lines:", "Private-MAC:"}} {
		if i := strings.LastIndex(s, mark[0]); i >= 0 && !strings.Contains(s[i:], mark[1]) {
			from(i)
		}
	}
	// A Kubernetes manifest says what it is after its data.
	if i := lastLine(s, "data:", "stringData:", "apiVersion:"); i >= 0 && !strings.Contains(s[i:], "\n---") && !strings.Contains(s[i:], "\n\n") {
		from(i)
	}
	// The last line, and the lines above that it belongs to by its indentation.
	end, deepest := len(s), -1
	for n := 0; n < 64 && end > 0; n++ {
		b := strings.LastIndexByte(s[:end-1], '\n') + 1
		t := strings.TrimRight(s[b:end-1], " \t\r")
		indent := skipBlank(t, 0)
		switch {
		case t == "":
		case deepest < 0:
			if opens(t) || goesOn(t) {
				from(b)
			}
			deepest = indent
		case indent < deepest || indent == deepest && strings.HasPrefix(t[indent:], "- ") && deepest == 0:
			if opens(t) {
				from(b)
			}
			deepest = indent
		}
		if deepest == 0 {
			break
		}
		end = b
	}
	return hold
}

func lastLine(s string, heads ...string) int {
	last := -1
	for _, h := range heads {
		if strings.HasPrefix(s, h) {
			last = max(last, 0)
		}
		if i := strings.LastIndex(s, "\n"+h); i >= 0 {
			last = max(last, i+1)
		}
	}
	return last
}

// opens says that a line ends with a credential's name and what introduces its
// value.
func opens(t string) bool {
	head := strings.TrimRight(t, ":=|>+-([{ \t\"'`\\*")
	if len(head) == len(t) {
		return false
	}
	b := len(head)
	for b > 0 && (isWord(head[b-1]) || head[b-1] == '-' || head[b-1] == '.' || head[b-1] >= 0x80) && len(head)-b < maxName {
		b--
	}
	var w words
	id := head[b:]
	before := ""
	if b > 1 && head[b-1] == ' ' {
		e := b - 1
		for b = e; b > 0 && isLetter(head[b-1]); b-- {
		}
		before = strings.ToLower(head[b:e])
	}
	return id != "" && len(id) < maxName && w.classify(id, before).grade != noName
}

// goesOn says that the line after t is read with it: a line that is continued,
// a here-document, the first half of name and value, a .netrc entry.
func goesOn(t string) bool {
	l := strings.ToLower(strings.TrimSpace(t))
	if strings.HasSuffix(l, "\\") || strings.Contains(l, "<<") || strings.Contains(l, "name:") || strings.Contains(l, `"name"`) || strings.Contains(l, "key:") || strings.HasSuffix(l, "</key>") {
		return true
	}
	first, _, _ := strings.Cut(l, " ")
	return first == "machine" || first == "login" || first == "default"
}

// JSON copies lines of {"id", "text"} or {"id", "value"}, redacted: the text
// as text, the value as a tree. Other members go through the pipeline too, but
// for id. A line that is no such object is written as redacted text, reported
// to bad, and counted.
func (f *Filter) JSON(dst io.Writer, src io.Reader, bad func(line int, err error)) (failed int, err error) {
	r := bufio.NewReaderSize(src, 64<<10)
	w := bufio.NewWriter(dst)
	for n := 1; ; n++ {
		line, readErr := r.ReadBytes('\n')
		if t := bytes.TrimSpace(line); len(t) > 0 {
			out, err := f.record(n, t)
			if err != nil {
				failed++
				if bad != nil {
					bad(n, err)
				}
				out = []byte(f.Pipe.Text(string(t)))
			}
			out = append(out, '\n')
			if _, err := w.Write(out); err != nil {
				return failed, err
			}
		}
		if r.Buffered() == 0 || readErr != nil {
			if err := w.Flush(); err != nil {
				return failed, err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return failed, nil
		}
		if readErr != nil {
			return failed, readErr
		}
	}
}

func (f *Filter) record(n int, line []byte) ([]byte, error) {
	m, err := event.ParseObject(line)
	if err != nil {
		return nil, err
	}
	text, isText := m["text"]
	_, isValue := m["value"]
	if !isText && !isValue {
		return nil, fmt.Errorf(`want an object with "text" or "value"`)
	}
	if _, ok := text.(string); isText && !ok {
		return nil, fmt.Errorf(`"text" must be a string`)
	}
	id, hasID := m["id"]
	delete(m, "id")
	rest, findings := f.Pipe.explainTree(m, f.Explain != nil)
	out, _ := rest.(map[string]any)
	if hasID {
		// A copy, unless nothing was hidden; m is ours either way.
		out["id"] = id
	}
	for _, x := range findings {
		f.Explain(n, x)
	}
	return event.AppendValue(nil, out), nil
}
