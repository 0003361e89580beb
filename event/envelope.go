package event

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// coreNames are the envelope's own attributes, in the order in which AEP-0001
// §5.1 numbers them.
var coreNames = []string{
	"aep", "id", "type", "subject", "time", "source", "agent", "session", "run", "step",
	"seq", "epoch", "cause", "traceparent", "severity", "capture", "data",
}

// extensionName says whether name is a legal extension attribute's name
// (AEP-0001 §5.4): [a-z0-9]{1,20} and none of the envelope's own.
func extensionName(name string) bool {
	if len(name) < 1 || len(name) > 20 {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return !slices.Contains(coreNames, name)
}

// SetExt sets an extension attribute (AEP-0001 §5.4). It refuses a name that
// is not [a-z0-9]{1,20} or that is one of the envelope's own, and a value that
// is not a string, an integer or a boolean. Integers of any Go type become
// int64.
func (h *Header) SetExt(name string, value any) error {
	if !extensionName(name) {
		if slices.Contains(coreNames, name) {
			return fmt.Errorf("extension attribute %q: the envelope's own name; choose another", name)
		}
		return fmt.Errorf("extension attribute %s: a name is 1 to 20 of a-z and 0-9", quote(name))
	}
	v, ok := scalar(value)
	if !ok {
		return fmt.Errorf("extension attribute %q: %T is no value; want a string, an integer or a boolean", name, value)
	}
	if h.Ext == nil {
		h.Ext = make(map[string]any, 1)
	}
	h.Ext[name] = v
	return nil
}

// scalar gives the one form in which an extension attribute's value is held
// and compared: string, bool, int64, or json.Number for an integer beyond
// int64, in its shortest spelling.
func scalar(v any) (any, bool) {
	switch x := v.(type) {
	case string:
		return v, utf8.ValidString(x)
	case bool, int64:
		return v, true
	case json.Number:
		return integer(string(x))
	}
	switch x := reflect.ValueOf(v); {
	case x.CanInt():
		return x.Int(), true
	case x.CanUint():
		return integer(strconv.FormatUint(x.Uint(), 10))
	}
	return nil, false
}

// integer reads a JSON number that has no fraction, however it is spelt
// (JSON Schema's integer: 1.0 and 1e2 are).
func integer(s string) (any, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != math.Trunc(f) {
		return nil, false
	}
	if math.Abs(f) < 1<<53 {
		return int64(f), true
	}
	for i := range len(s) { // spelt as an integer: keep every digit
		if c := s[i]; c-'0' > 9 && (c != '-' || i > 0) {
			return json.Number(strconv.FormatFloat(f, 'f', -1, 64)), true
		}
	}
	return json.Number(s), true
}

// AppendJSON appends the event's one line, without a line break: the envelope
// in the order of AEP-0001 §5, extension attributes by name, data last. What
// is absent, or a default (epoch 0, severity info), is left out; seq 0 and
// capture are written. Time is UTC, in milliseconds.
func (e *Event) AppendJSON(dst []byte) []byte {
	// Room for all of it, its names included; a few escapes still fit.
	dst = slices.Grow(dst, 208+len(e.ID)+len(e.Type)+len(e.Subject)+len(e.Source)+len(e.Agent)+len(e.Session)+
		len(e.Run)+len(e.Step)+len(e.Cause)+len(e.Traceparent)+len(e.Data))
	dst = append(dst, `{"aep":"`+Version+`"`...)
	dst = appendAttr(dst, `,"id":`, e.ID)
	dst = appendAttr(dst, `,"type":`, e.Type)
	dst = appendAttr(dst, `,"subject":`, e.Subject)
	dst = append(dst, `,"time":"`...)
	dst = appendTime(dst, e.Time)
	dst = append(dst, '"')
	dst = appendAttr(dst, `,"source":`, e.Source)
	dst = appendAttr(dst, `,"agent":`, e.Agent)
	dst = appendAttr(dst, `,"session":`, e.Session)
	dst = appendAttr(dst, `,"run":`, e.Run)
	dst = appendAttr(dst, `,"step":`, e.Step)
	if e.Sequenced {
		dst = append(dst, `,"seq":`...)
		dst = strconv.AppendInt(dst, e.Seq, 10)
	}
	if e.Epoch != 0 {
		dst = append(dst, `,"epoch":`...)
		dst = strconv.AppendInt(dst, e.Epoch, 10)
	}
	dst = appendAttr(dst, `,"cause":`, e.Cause)
	dst = appendAttr(dst, `,"traceparent":`, e.Traceparent)
	if e.Severity != Info {
		dst = append(dst, `,"severity":"`...)
		dst = append(dst, e.Severity.String()...)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"capture":"`...)
	dst = append(dst, e.Capture.String()...)
	dst = append(dst, '"')
	if len(e.Ext) > 0 {
		dst = appendExt(dst, e.Ext)
	}
	if e.Data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, OneLine(e.Data)...)
	}
	return append(dst, '}')
}

func appendAttr(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendString(append(dst, name...), value)
}

func appendExt(dst []byte, ext map[string]any) []byte {
	var few [8]string
	names := few[:0]
	for name := range ext {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if v, ok := scalar(ext[name]); ok && extensionName(name) {
			dst = append(dst, ',')
			dst = appendString(dst, name)
			dst = append(dst, ':')
			dst = AppendValue(dst, v)
		}
	}
	return dst
}

// appendTime appends an instant as RFC 3339 in UTC with milliseconds.
func appendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 { // no such instant on the wire
		return append(dst, "0001-01-01T00:00:00.000Z"...)
	}
	hour, min, sec := t.Clock()
	ms := t.Nanosecond() / int(time.Millisecond)
	two := func(sep byte, n int) {
		dst = append(dst, sep, '0'+byte(n/10), '0'+byte(n%10))
	}
	dst = append(dst, '0'+byte(year/1000), '0'+byte(year/100%10), '0'+byte(year/10%10), '0'+byte(year%10))
	two('-', int(month))
	two('-', day)
	two('T', hour)
	two(':', min)
	two(':', sec)
	return append(dst, '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z')
}

// MarshalJSON is AppendJSON.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// UnmarshalJSON is Parse.
func (e *Event) UnmarshalJSON(raw []byte) error {
	p, err := Parse(raw)
	if err == nil {
		*e = p
	}
	return err
}
