package redaction

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/event"
	"aep-wrap/event/eventtest"
)

func parse(t testing.TB, s string) any {
	t.Helper()
	v, err := event.ParseJSON([]byte(s))
	if err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return v
}

func TestValue(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"credential's names", `{"token":"a b","API_KEY":"x","Password":"correct horse","region":"eu"}`, `{"token":"M","API_KEY":"M","Password":"M","region":"eu"}`},
		{"whatever it looks like", `{"secret":"${X}","token":"null","password":"550e8400-e29b-41d4-a716-446655440000"}`, `{"secret":"M","token":"M","password":"M"}`},
		{"empty stays", `{"password":"","token":null,"secret":true}`, `{"password":"","token":null,"secret":true}`},
		{"numbers under a password", `{"password":12345678,"pin":1234,"max_tokens":4096,"tokens":512,"token":{"n":5}}`, `{"password":"M","pin":"M","max_tokens":4096,"tokens":512,"token":{"n":5}}`},
		{"nested", `{"credentials_token":{"a":["x","y"],"b":{"c":"z"}}}`, `{"credentials_token":{"a":["M","M"],"b":{"c":"M"}}}`},
		{"headers", `{"headers":{"Authorization":"Basic dXNlcjpwYXNz","X-Api-Key":["k1"],"Accept":"*/*","Cookie":"a=b"}}`, `{"headers":{"Authorization":"M","X-Api-Key":["M"],"Accept":"*/*","Cookie":"M"}}`},
		{"pairs", `[{"name":"DB_PASSWORD","value":"x y"},{"name":"PORT","value":"80"},{"Key":"ApiToken","Value":"z"}]`, `[{"name":"DB_PASSWORD","value":"M"},{"name":"PORT","value":"80"},{"Key":"ApiToken","Value":"M"}]`},
		{"header pairs", `[["Authorization","Bearer x"],["Accept","*/*"]]`, `[["Authorization","M"],["Accept","*/*"]]`},
		{"names are no values", `["password","token","email"]`, `["password","token","email"]`},
		{"argv", `{"argv":["app","--password","hunter2","--token-file","p","-v","--key","AKIAIOSFODNN7EXAMPLE"]}`, `{"argv":["app","--password","M","--token-file","p","-v","--key","M"]}`},
		{"argv of a program", `["curl","-u","bob:hunter2","https://h.test"]`, `["curl","-u","bob:M","https://h.test"]`},
		{"argv glued", `["mysql","-phunter2","db"]`, `["mysql","-pM","db"]`},
		{"env list", `{"Env":["PATH=/bin","API_TOKEN=x1y2"]}`, `{"Env":["PATH=/bin","API_TOKEN=M"]}`},
		{"elsewhere in the tree", `{"a":"see q1w2e3r4t5","b":{"password":"q1w2e3r4t5"},"c":["q1w2e3r4t5!"]}`, `{"a":"see M","b":{"password":"M"},"c":["M!"]}`},
		{"basic's password elsewhere", `{"h":{"authorization":"Basic dXNlcjpodW50ZXIyaHVudGVyMg=="},"x":"pw hunter2hunter2"}`, `{"h":{"authorization":"M"},"x":"pw M"}`},
		{"member names", `{"ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789":1,"jane@example.com":2}`, `{"M":1,"[REDACTED:pii]":2}`},
		{"member names that collide", `{"a@b.io":1,"c@d.io":1}`, `{"[REDACTED:pii]":1,"[REDACTED:pii]#2":1}`},
		{"json in a string", `{"body":"{\"password\":\"hunter2\",\"n\":1}"}`, `{"body":"{\"password\":\"M\",\"n\":1}"}`},
		{"kubernetes", `{"kind":"Secret","data":{"a":"eA=="},"metadata":{"name":"x"}}`, `{"kind":"Secret","data":{"a":"M"},"metadata":{"name":"x"}}`},
		{"jwk", `{"kty":"EC","x":"pub","d":"priv"}`, `{"kty":"EC","x":"pub","d":"M"}`},
		{"docker auth", `{"auths":{"r.test":{"auth":"dXNlcjpwYXNz"}}}`, `{"auths":{"r.test":{"auth":"M"}}}`},
		{"weak names", `{"auth":"oauth2","key":"name","sort_key":"a1b2c3d4e5f6","session_id":"550e8400-e29b-41d4-a716-446655440000","code":"E404"}`, `{"auth":"oauth2","key":"name","sort_key":"a1b2c3d4e5f6","session_id":"550e8400-e29b-41d4-a716-446655440000","code":"E404"}`},
		{"weak names, strong values", `{"key":"9f8e7d6c5b4a39281706f5e4d3c2b1a0"}`, `{"key":"M"}`},
		{"plural", `{"tokens":["a1b2c3d4e5f6g7h8i9"],"passwords":["swordfish"],"secrets":["db-password"],"keys":["name"]}`, `{"tokens":["M"],"passwords":["M"],"secrets":["db-password"],"keys":["name"]}`},
		{"cookies", `{"cookies":[{"name":"sid","value":"abc","path":"/"}]}`, `{"cookies":[{"name":"sid","value":"M","path":"/"}]}`},
		{"a schema", `{"properties":{"user":{"type":"string"}}}`, `{"properties":{"user":{"type":"string"}}}`},
		{"scalars", `[1,1.50,true,null,""]`, `[1,1.50,true,null,""]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := parse(t, c.in)
			want := parse(t, strings.ReplaceAll(c.want, "M", SecretMarker))
			p := NewPipeline(Options{})
			got := p.Value(in)
			if c.name == "kubernetes" {
				want = parse(t, strings.Replace(c.want, `"M"`, `"`+SecretMarker+`"`, 1))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(parse(t, c.in), in); diff != "" {
				t.Errorf("the input was changed:\n%s", diff)
			}
			if diff := cmp.Diff(got, p.Value(got)); diff != "" {
				t.Errorf("a second run changes it:\n%s", diff)
			}
			explained, findings := p.ExplainValue(in)
			if diff := cmp.Diff(got, explained); diff != "" {
				t.Errorf("ExplainValue differs:\n%s", diff)
			}
			if same := cmp.Equal(in, got); same != (len(findings) == 0) {
				t.Errorf("findings %v", findings)
			}
		})
	}
}

func TestExplainValueNamesPaths(t *testing.T) {
	_, fs := NewPipeline(Options{}).ExplainValue(parse(t, `{"a":[{"password":"x"},"mail a@b.io"],"t":"Bearer abc123def456"}`))
	got := map[string]string{}
	for _, f := range fs {
		got[f.Path] = f.Rule
	}
	if diff := cmp.Diff(map[string]string{".a[0].password": "secret.key", ".a[1]": "pii.email", ".t": "secret.bearer"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestListedValues(t *testing.T) {
	const v = `s3cr3t/value+"x" y&z`
	p := NewPipeline(Options{Secrets: []Secret{{"V", v}, {"SHORT", "abcd"}, {"TINY", "xy"}}})
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	js, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	nested, err := json.Marshal(string(js))
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{
		"raw": v, "json": string(js), "json in json": string(nested), "query": url.QueryEscape(v), "path": url.PathEscape(v),
		"base64": b64(v), "base64 after one byte": b64("u" + v), "base64 after two": b64("us" + v), "base64 after a user": b64("user:" + v), "base64 followed": b64(v + "tail of it"),
		"base64url": base64.URLEncoding.EncodeToString([]byte(v)), "in a word": "x" + v + "y", "coloured": "\x1b[31ms3cr3t/va\x1b[0mlue+\"x\" y&z",
		"short": "run abcd now",
	} {
		out := p.Text("a " + in + " b")
		if out == "a "+in+" b" || !strings.Contains(out, SecretMarker) || strings.Contains(out, v) {
			t.Errorf("%s: %q stays: %q", name, in, out)
		}
		if again := p.Text(out); again != out {
			t.Errorf("%s: a second run changes it: %q", name, again)
		}
		// No long piece of an encoding is left.
		for i := 0; i+12 <= len(in); i++ {
			if piece := in[i : i+12]; name != "coloured" && strings.Contains(out, piece) && !strings.Contains("tail of it", piece) && name != "base64 followed" {
				t.Errorf("%s: %q is left in %q", name, piece, out)
			}
		}
	}
	for _, in := range []string{"abcde", "xabcd", "xy"} {
		if out := p.Text("run " + in + " now"); out != "run "+in+" now" {
			t.Errorf("%q: %q", in, out)
		}
	}
}

func TestChildSecrets(t *testing.T) {
	env := []string{
		"HOME=/home/jane", "USER=janedoe99", "PATH=/bin", "EMPTY_TOKEN=", "=x", "NOEQUALS",
		"API_TOKEN=tok-value-123", "MY_KEY=key-value-123", "A_SECRET=secret-value", "B_PASS=pass-value", "C_PASSWORD=password-value", "D_PASSWD=passwd-value", "E_CREDENTIALS=cred-value-1",
		"lower_token=lower-value", "PGPASSWORD=pg-value-1", "MYSQL_PWD=mysql-value",
		"SHORT_TOKEN=abc", "BOOL_TOKEN=true", "PATH_KEY=/etc/ssl/private/key.pem", "HOME_KEY=~/.ssh/id", "USER_TOKEN=janedoe99", "URL_KEY=https://h.test/x/y", "HOST_KEY=registry.example.com", "WORD_SECRET=production",
		"DATABASE_URL=postgres://bob:pg-pw-12345@h/db", "ENC_URL=redis://:p%40ssw0rd1@h", "LISTED=four", "LISTED2=/a/path/too", "PLAIN=plain-value-123",
		"PEM_KEY=-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----",
		"DUP_TOKEN=tok-value-123", "MAX_TOKENS=4096000000",
	}
	got := map[string]string{}
	for _, s := range ChildSecrets(env, []string{"LISTED", "LISTED2", "MISSING"}) {
		if _, dup := got[s.Value]; dup {
			t.Errorf("%q twice", s.Value)
		}
		got[s.Value] = s.Name
	}
	want := map[string]string{
		"tok-value-123": "API_TOKEN", "key-value-123": "MY_KEY", "secret-value": "A_SECRET", "pass-value": "B_PASS", "password-value": "C_PASSWORD", "passwd-value": "D_PASSWD", "cred-value-1": "E_CREDENTIALS",
		"lower-value": "lower_token", "pg-value-1": "PGPASSWORD", "mysql-value": "MYSQL_PWD", "pg-pw-12345": "DATABASE_URL", "p%40ssw0rd1": "ENC_URL", "p@ssw0rd1": "ENC_URL", "four": "LISTED", "/a/path/too": "LISTED2",
		"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----": "PEM_KEY", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC": "PEM_KEY",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o        Options
		in, want string
	}{
		{Options{}, "a@b.io +1 555 123 4567 /home/x", "[REDACTED:pii] [REDACTED:pii] ~"},
		{Options{NoPII: true}, "a@b.io +1 555 123 4567 /home/x password=pw", "a@b.io +1 555 123 4567 ~ password=[REDACTED:secret]"},
		{Options{Home: "/data/people/jane"}, "/data/people/jane/x /data/people/jane2 /data/people/jane", "~/x /data/people/jane2 ~"},
		{Options{Home: "/home/jane/"}, "/home/jane/x", "~/x"},
		{Options{Home: "/home/jane"}, "~/.claude/projects/-home-jane-dev-x/a.jsonl", "~/.claude/projects/~-dev-x/a.jsonl"},
		{Options{Home: "/"}, "/etc/x", "/etc/x"},
		{Options{Home: "/root"}, "/root/x /rooted", "~/x /rooted"},
		{Options{Home: `C:\Users\jane`}, `C:\Users\jane\x "C:\\Users\\jane\\y" C:/Users/jane/z`, `~\x "~\\y" ~/z`},
	} {
		if got := NewPipeline(c.o).Text(c.in); got != c.want {
			t.Errorf("%+v: %q\n got %q\nwant %q", c.o, c.in, got, c.want)
		}
	}
	var none *Pipeline
	if got := none.Text("password=hunter2"); got != "password="+SecretMarker {
		t.Errorf("a nil pipeline: %q", got)
	}
	if got, _ := none.Explain("mail a@b.io"); got != "mail "+PIIMarker {
		t.Errorf("a nil pipeline explains: %q", got)
	}
}

// TestJSONStaysJSON: hiding in a JSON text leaves one.
func TestJSONStaysJSON(t *testing.T) {
	for _, in := range []string{
		`{"password":"hunter2","n":1}`, `{"pin":123456,"password":12345678,"x":[1]}`, `{"a":"{\"token\":\"abc\\\"def\"}"}`, `{"env":["A_TOKEN=b","C=d"]}`,
		`{"password": 12345678}`, `{"token":"a\"b","x":1}`, `{"token":"a\\","x":1}`, `{"out":"password=abc\nnext","b":2}`, `{"url":"https://u:p@h/x","k":"AKIAIOSFODNN7EXAMPLE"}`,
		`{"cmd":"curl -u a:b1c2 -H \"Cookie: a=b\" x","y":"z"}`, `{"pem":"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n","y":1}`, `{"secret":["a","b"],"z":{"token":{"value":"x"}}}`,
	} {
		out := NewPipeline(Options{}).Text(in)
		if out == in || !json.Valid([]byte(out)) {
			t.Errorf("%s\nbecame %s", in, out)
		}
	}
}

// TestLinear: eight times the text takes about eight times as long, whatever it
// is made of.
func TestLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("times things")
	}
	p := NewPipeline(Options{Home: "/home/op", Secrets: []Secret{{"A", strings.Repeat("a", 40) + "b"}, {"B", "q1w2e3r4t5"}}})
	for _, unit := range []string{
		"a", "a b ", "password=", `"`, `\`, `\"`, "-----BEGIN A-----", "-----BEGIN PRIVATE KEY-----\nAAAA\n", "://", "a://b:", "@", "a@", "a.b.", "token: ", "token:\n", "token=\n\n", "{\"token\":", "[[", "secret: |\n",
		"eyJ", "eyJhbGci.eyJ.", "Bearer ", "curl -u ", "curl ", "mysql -p", "\x1b[", "\x1b]", "%", "%3D", "&quot;", "password%3D", "Cookie: a=", "; a=b", "+1 ", "1-", "(555) ", "/home/", "/Users/", "kind: Secret\ndata:\n a: b\n",
		"name: TOKEN\n", `"name":"TOKEN",`, "user,password\n", "a,password\nb,c1d2\n", "| password ", "INSERT INTO t (password) VALUES ", "identified by ", "echo x | sudo -S", "expect \"assword\"\nsend \"x\"\n", "$6$", "sk-", "ghp_aaaaaaaaaaaaaaaaaaaaaaaaaaa ",
		"PASSWORD=a b c\n", "the password is ", "TOKEN='", "TOKEN=\"\\", "<password>", "<td>password</td>", "\"kty\"", ":5432:", "Authorization: Basic ", "password=\"\"\"", "${PASSWORD:-", "A_TOKEN=x1y2z3w4 ", "api key ", "LS0tLS1CRUdJTi", "\\u0022", "\\n", "\n",
	} {
		time1 := func(n int) time.Duration {
			s := strings.Repeat(unit, n/len(unit)+1)
			best := time.Hour
			for range 3 {
				best = min(best, eventtest.CPU(t, func() { p.Text(s) }))
			}
			return best
		}
		// What grows by the square takes 64 times as long for eight times the
		// text. A busy machine's caches may be cold once, not each time.
		const n = 32 << 10
		var small, large time.Duration
		for range 4 {
			small, large = time1(n), time1(8*n)
			if large < 24*small+10*time.Millisecond {
				break
			}
		}
		if large >= 24*small+10*time.Millisecond {
			t.Errorf("%q: %v for %d bytes, %v for %d", unit, small, n, large, 8*n)
		}
	}
}

func TestConcurrent(t *testing.T) {
	p := NewPipeline(Options{Secrets: []Secret{{"A", "q1w2e3r4t5"}}})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				in := fmt.Sprintf("password=hunter%dx then q1w2e3r4t5", i)
				if out := p.Text(in); out != "password="+SecretMarker+" then "+SecretMarker {
					t.Error(out)
				}
			}
		})
	}
	wg.Wait()
}

func TestFilterText(t *testing.T) {
	pem := "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat("MIIEowIBAAKCAQEA7bq9f8e7d6c5b4a39281706f5e4d3c2b1a0MIIEowIBAAKC\n", 40) + "-----END RSA PRIVATE KEY-----\n"
	in := strings.Repeat("plain line of text\n", 2000) + pem + strings.Repeat("more of it\n", 2000) + "token:\n  hunter2x\nsecret: |\n  one line\n  two\nend\npassword=last1"
	for _, size := range []int{13, 100, 4096, 1 << 20} {
		var out strings.Builder
		if err := (&Filter{Pipe: NewPipeline(Options{}), Idle: time.Hour}).Text(&out, &dripping{s: in, n: size}); err != nil {
			t.Fatal(err)
		}
		want := NewPipeline(Options{}).Text(in)
		if out.String() != want {
			t.Errorf("in pieces of %d: differs from Text", size)
		}
	}
}

// TestFilterTextLive: what is complete comes out while the input stays open,
// and what has begun is held.
func TestFilterTextLive(t *testing.T) {
	r, w := io.Pipe()
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := (&Filter{Pipe: NewPipeline(Options{}), Idle: time.Millisecond}).Text(pw, r)
		pw.Close()
		done <- err
	}()
	read := func(n int) string {
		b := make([]byte, n)
		if _, err := io.ReadFull(pr, b); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	write := func(s string) {
		if _, err := io.WriteString(w, s); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	if got := read(4); got != "one\n" {
		t.Errorf("%q", got)
	}
	write("a\n-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n")
	if got := read(2); got != "a\n" {
		t.Errorf("%q", got)
	}
	write("AAECAwQFBgcICQoLDA0ODw==\n-----END PRIVATE KEY-----\nz\n")
	if got, want := read(len(SecretMarker)+3), SecretMarker+"\nz\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	write("TOKEN=q1w2e3r4t5\n")
	read(len("TOKEN=" + SecretMarker + "\n"))
	write("later q1w2e3r4t5\n")
	if got, want := read(len("later "+SecretMarker+"\n")), "later "+SecretMarker+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w.Close()
	if _, err := io.ReadAll(pr); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type dripping struct {
	s string
	n int
}

func (d *dripping) Read(b []byte) (int, error) {
	if d.s == "" {
		return 0, io.EOF
	}
	n := copy(b, d.s[:min(len(d.s), d.n)])
	d.s = d.s[n:]
	return n, nil
}

func TestFilterBounded(t *testing.T) {
	// One line of 40 MB.
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n := counter(0)
	src := io.LimitReader(repeat("word "), 40<<20)
	if err := (&Filter{Pipe: NewPipeline(Options{})}).Text(&n, src); err != nil {
		t.Fatal(err)
	}
	if n != 40<<20 {
		t.Errorf("%d bytes came out", n)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+64<<20 {
		t.Errorf("%d bytes are held", after.HeapAlloc-before.HeapAlloc)
	}
}

type counter int

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

type repeat string

func (r repeat) Read(b []byte) (int, error) {
	n := 0
	for n+len(r) <= len(b) {
		n += copy(b[n:], r)
	}
	return n, nil
}

func TestFilterJSON(t *testing.T) {
	in := `{"id":1,"text":"password=hunter2x"}
{"id":"ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789","value":{"token":"x","n":1.50}}

not json password=hunter2x
{"id":3}
{"text":5}
{"id":4,"text":"a@b.io","note":"a@b.io"}`
	want := `{"id":1,"text":"password=[REDACTED:secret]"}
{"id":"ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789","value":{"n":1.50,"token":"[REDACTED:secret]"}}
not json password=[REDACTED:secret]
{"id":3}
{"text":5}
{"id":4,"note":"[REDACTED:pii]","text":"[REDACTED:pii]"}
`
	var out strings.Builder
	var bad []int
	var found []string
	f := Filter{Pipe: NewPipeline(Options{}), Explain: func(line int, x Finding) { found = append(found, fmt.Sprint(line, x.Path, x.Rule)) }}
	n, err := f.JSON(&out, strings.NewReader(in), func(line int, err error) { bad = append(bad, line) })
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got %s\nwant %s", out.String(), want)
	}
	if diff := cmp.Diff([]int{4, 5, 6}, bad); diff != "" || n != 3 {
		t.Errorf("%d bad: %v", n, bad)
	}
	if len(found) != 4 {
		t.Errorf("findings: %v", found)
	}
}

// TestIdempotentOnTables: what the pipeline wrote it does not touch again,
// wherever a marker stands.
func TestIdempotentOnTables(t *testing.T) {
	p := NewPipeline(Options{Home: "/home/op"})
	for _, pl := range places {
		for _, v := range []string{"hunter2x", "correct horse battery staple", "p@ss!w0rd"} {
			once := p.Text(strings.Replace(pl.text, "§", v, 1))
			if twice := p.Text(once); twice != once {
				t.Errorf("%s\nonce  %q\ntwice %q", pl.name, once, twice)
			}
		}
	}
}

func FuzzText(f *testing.F) {
	for _, pl := range places {
		f.Add(strings.Replace(pl.text, "§", "hunter2x", 1))
	}
	for _, r := range Rules() {
		for _, e := range append(append([]string{}, r.Yes...), r.No...) {
			in, _, _ := plant(e, func(s string) string { return s })
			f.Add(in)
		}
	}
	p := NewPipeline(Options{Home: "/home/op", Secrets: []Secret{{"A", "q1w2e3r4t5y6"}}})
	f.Fuzz(func(t *testing.T, s string) {
		out, findings := p.Explain(s)
		for _, x := range findings {
			if x.Start < 0 || x.End > len(s) || x.Start >= x.End {
				t.Fatalf("finding %v of %d bytes", x, len(s))
			}
		}
		if text := p.Text(s); text != out {
			t.Fatalf("Explain %q, Text %q", out, text)
		}
		if strings.Contains(out, "q1w2e3r4t5y6") {
			t.Fatalf("a listed value is left: %q", out)
		}
		// A listed value planted anywhere goes.
		if i := len(s) / 2; strings.Contains(p.Text(s[:i]+"q1w2e3r4t5y6"+s[i:]), "q1w2e3r4t5y6") {
			t.Fatalf("planted in %q", s)
		}
		if again := p.Text(out); again != out {
			t.Fatalf("in   %q\nonce  %q\ntwice %q", s, out, again)
		}
		var v any = map[string]any{s: []any{s, map[string]any{"k": s}}}
		p.Value(v)
	})
}

func FuzzDownlevelLine(f *testing.F) {
	f.Add([]byte(`{"aep":"0.1","id":"a","type":"tool.completed","time":"2026-07-03T10:00:00Z","source":"aep://h","agent":"a","session":"s","seq":0,"capture":"full","data":{"tool":{"name":"b"},"result":"SECRET","x":[1,{"y":2}]},"ext":"e"}`))
	f.Add([]byte(`{"type":"attention.answered","data":{"answer":{"values":{"a":1,"b":"SECRET"}}},"capture":"redacted"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, l := range levels() {
			out, err := DownlevelLine(line, l)
			if err != nil {
				continue
			}
			again, err := DownlevelLine(out, l)
			if err != nil || string(again) != string(out) {
				t.Fatalf("%s\nonce  %s\ntwice %s (%v)", line, out, again, err)
			}
		}
	})
}
