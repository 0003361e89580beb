package follow

// The bounds of a record.
const (
	// longString is the length from which a string inside a record is passed
	// over and told by its length.
	longString = 64 << 10
	// crowded is how much of a record is kept before shorter strings are
	// passed over too.
	crowded     = 4 << 20
	crowdString = 1 << 10
	// maxRecord is how much of a record is kept at most.
	maxRecord = 8 << 20
)

// Fault says why a record cannot be read.
type Fault string

// The faults that the splitter finds. What is wrong inside a whole object is
// its parser's to say.
const (
	Torn     Fault = "torn"      // its line ended before it did
	NotJSON  Fault = "not_json"  // neither an object nor an array begins there
	TooLarge Fault = "too_large" // beyond maxRecord even without its long strings
)

// Record is one object of a log: from Start up to End in the file, or in what
// the file holds when it is unpacked. Line is its text, with strings of more
// than 64 KiB replaced by their length; it is good until Take returns.
type Record struct {
	Start, End int64
	Line       []byte
	Cut        int // strings that were passed over
	Fault      Fault
}

// splitter cuts a stream of JSON objects into records: one a line, or several
// on one, with any white space and NULs between them. It keeps no more than
// maxRecord bytes, whatever comes.
type splitter struct {
	emit func(Record)

	off   int64 // of the next byte
	start int64 // of the record that is begun
	buf   []byte
	depth int
	state state
	strAt int // where in buf the string at hand begins
	strN  int // how long it is so far, without its quotes
	cuts  int
	skip  bool // the string at hand is passed over
	over  bool // the record at hand is
}

type state uint8

const (
	between state = iota
	inside        // of an object or an array
	str
	esc  // behind a backslash in a string
	junk // what is no object, to the end of its line
)

// reset begins anew at an offset, where a record begins.
func (s *splitter) reset(off int64) {
	s.off, s.start = off, off
	s.forget()
}

func (s *splitter) forget() {
	if cap(s.buf) > 64<<10 {
		s.buf = nil
	}
	s.buf = s.buf[:0]
	s.depth, s.state, s.cuts, s.skip, s.over = 0, between, 0, false, false
}

// end is where the last record ended, or what comes after it begins.
func (s *splitter) end() int64 {
	if s.state != between {
		return s.start
	}
	return s.off
}

// feed takes the next bytes of the stream.
func (s *splitter) feed(b []byte) {
	for i := 0; i < len(b); {
		switch s.state {
		case between:
			i += s.gap(b[i:])
		case inside:
			i += s.body(b[i:])
		case str, esc:
			i += s.text(b[i:])
		case junk:
			i += s.waste(b[i:])
		}
	}
}

// gap passes over what is between records.
func (s *splitter) gap(b []byte) int {
	for i, c := range b {
		switch {
		case c == '{' || c == '[':
			s.off += int64(i)
			s.start, s.state, s.depth = s.off, inside, 0
			return i
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == 0:
		case s.off+int64(i) < 3 && c == "\xef\xbb\xbf"[s.off+int64(i)]: // a byte order mark
		default:
			s.off += int64(i)
			s.start, s.state = s.off, junk
			return i
		}
	}
	s.off += int64(len(b))
	return len(b)
}

// body takes what is inside an object and outside its strings.
func (s *splitter) body(b []byte) int {
	for i, c := range b {
		switch c {
		case '"':
			s.keep(b[:i+1])
			s.off += int64(i + 1)
			s.state, s.strAt, s.strN = str, len(s.buf), 0
			return i + 1
		case '{', '[':
			s.depth++
		case '}', ']':
			if s.depth--; s.depth == 0 {
				s.keep(b[:i+1])
				s.off += int64(i + 1)
				s.done("")
				return i + 1
			}
		case '\n', 0:
			s.keep(b[:i])
			s.off += int64(i)
			s.done(Torn)
			return i
		}
	}
	s.keep(b)
	s.off += int64(len(b))
	return len(b)
}

// text takes what is inside a string.
func (s *splitter) text(b []byte) int {
	i := 0
	for i < len(b) {
		c := b[i]
		if s.state == esc {
			if c == '\n' || c == 0 {
				break
			}
			s.state = str
			i++
			continue
		}
		if c == '"' || c == '\n' || c == 0 {
			break
		}
		if c == '\\' {
			s.state = esc
		}
		i++
	}
	s.strN += i
	if !s.skip {
		s.keep(b[:i])
		if long := s.strN > longString || len(s.buf) > crowded && s.strN > crowdString; long && !s.over {
			s.buf = s.buf[:s.strAt]
			s.skip = true
		}
	}
	s.off += int64(i)
	if i == len(b) {
		return i
	}
	if b[i] != '"' {
		s.skip = false
		s.done(Torn)
		return i
	}
	if s.skip {
		s.skip = false
		s.cuts++
		s.keep(lengthOf(s.strN))
	}
	s.keep(b[i : i+1])
	s.off++
	s.state = inside
	return i + 1
}

// lengthOf is what stands for a string that was passed over.
func lengthOf(n int) []byte {
	var digits [20]byte
	d := len(digits)
	for ; n > 0 || d == len(digits); n /= 10 {
		d--
		digits[d] = byte('0' + n%10)
	}
	return append(append([]byte("["), digits[d:]...), " bytes not read]"...)
}

// waste passes over what is no object.
func (s *splitter) waste(b []byte) int {
	for i, c := range b {
		if c == '\n' || c == 0 {
			s.off += int64(i)
			s.done(NotJSON)
			return i
		}
	}
	s.off += int64(len(b))
	return len(b)
}

func (s *splitter) keep(b []byte) {
	if s.over {
		return
	}
	if len(s.buf)+len(b) > maxRecord {
		s.over, s.buf = true, nil
		return
	}
	s.buf = append(s.buf, b...)
}

func (s *splitter) done(f Fault) {
	if s.over && f == "" {
		f = TooLarge
	}
	r := Record{Start: s.start, End: s.off, Line: s.buf, Cut: s.cuts, Fault: f}
	if f != "" {
		r.Line = nil
	}
	s.emit(r)
	s.forget()
}
