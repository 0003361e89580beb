package event

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line of JSONL that is read. Longer ones are passed
// over in bounded memory.
const MaxLine = 64 << 20

// ValidateReader reads JSON lines and calls fn for every rule that a line
// breaks: of the format (AEP-0003 §3.1), the envelope, its payload, and the
// stream that the lines are. Lines are counted from 1. A line of another major
// version is no finding against the stream: it is skipped, and the first of
// each is told with RuleMajor. The error is the reader's own.
func ValidateReader(r io.Reader, fn func(line int, v Violation)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	stream := NewStream()
	majors := make(map[string]bool)
	var buf []byte
	for n := 1; ; n++ {
		line, size, err := readLine(in, &buf)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", n, err)
		}
		last := err != nil
		if last && size == 0 {
			return nil
		}
		switch {
		case size > MaxLine:
			fn(n, *violation(RuleLineTooLong, "AEP-0003 §3.1", "%d bytes; lines are read up to %d", size, MaxLine))
		case len(bytes.TrimSpace(line)) == 0:
			fn(n, *violation(RuleBlankLine, "AEP-0003 §3.1", "the line is blank"))
		default:
			validateLine(stream, majors, line, func(v Violation) { fn(n, v) })
		}
		if last {
			return nil
		}
	}
}

func validateLine(stream *Stream, majors map[string]bool, line []byte, fn func(Violation)) {
	e, err := Parse(line)
	var v *Violation
	if errors.As(err, &v) {
		if v.Rule == RuleMajor {
			if len(majors) < 64 && !majors[v.Detail] { // a stream of made-up versions is told 64 times
				majors[v.Detail] = true
				fn(*v)
			}
			return
		}
		fn(*v)
		return
	}
	for _, v := range Check(e) {
		fn(v)
	}
	for _, v := range stream.Add(e) {
		fn(v)
	}
}

// readLine reads a line without its break into buf, of which it keeps no more
// than MaxLine bytes; size is the line's own length, with its break.
func readLine(in *bufio.Reader, buf *[]byte) (line []byte, size int, err error) {
	if cap(*buf) > 1<<20 {
		*buf = nil // one long line is no reason to hold on to its memory
	}
	*buf = (*buf)[:0]
	for {
		part, err := in.ReadSlice('\n')
		if size += len(part); size <= MaxLine {
			*buf = append(*buf, part...)
		} else {
			*buf = nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimSuffix(*buf, []byte("\n")), size, err
	}
}
