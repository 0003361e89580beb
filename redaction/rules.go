package redaction

import "strings"

// Rule is one way in which a thing to hide is told. Examples come with it: in
// Yes the part that must go stands in «»; everything else stays, as all of No
// does. A test runs them all: those of "listed" with s3cr3t-deploy as the
// operator's value, those of "secret.key" as trees.
type Rule struct {
	ID   string
	What string
	Yes  []string
	No   []string
	mark string
}

// Rules lists every rule, in the order of AEP-0003 §9.4: secrets, the
// operator's values, homes, personal data.
func Rules() []*Rule {
	all := []*Rule{
		ruleNamed, ruleKey, ruleOption, ruleCommand, ruleCall, ruleStdin, ruleTag, ruleAuthorization, ruleBearer, ruleBasic, ruleCookie,
		ruleURLUser, ruleQuery, ruleHook, rulePEM, rulePEM64, rulePutty, ruleJWT, ruleJWK, ruleKube, rulePgpass, ruleSQL, ruleCrypt,
		ruleDiscord, ruleVaultOld,
	}
	all = append(all, withExamples()...)
	return append(all, ruleListed, ruleAgain, ruleHome, ruleEmail, rulePhone)
}

var (
	ruleNamed = &Rule{ID: "secret.named", What: "a value under a credential's name (AEP-0003 §9.4a)",
		Yes: []string{
			"export API_KEY=«sk_abcdef123456» && run", "password : «hunter2sequel»", `{"token": "«tok_9f8e7d6c5b4a»", "n": 1}`,
			"token=\n«ZX12abcdef»", `{\"password\":\"«p4ss»\"}`, "db.password = «correct horse battery»", "secret: |\n  «line one\n  line two»\nnext: 1",
			"const apiKey = \"«abc»\" + \"«def»\";", "PGPASSWORD='«it is»' psql", "- name: DB_PASSWORD\n  value: «hunter2»", "my password is «hunter2»!",
			"machine h login u password «x9»", `let token: String = "«abcd»"`, "password=${PASSWORD:-«hunter2»}",
		},
		No: []string{
			"max_tokens=4096", "input_tokens: 100", "the token expired", "password must be 8 characters", "Secret: how to cook", "getToken()",
			"password: ${PASSWORD}", "token = os.environ[\"X\"]", "const t = process.env.TOKEN;", "passwordField.focus()", "keyboard=us", "monkey=1",
			"primary_key: id", "author: jane", "tokens: 512", "password_hash_algorithm=argon2", "token: <your-token>", "password: ********", "password: string;",
			"sort_key=name", "tokenizer=bpe", "self.password = password", "token = resp.json()[\"token\"]",
		}}
	ruleKey = &Rule{ID: "secret.key", What: "what an object holds under a credential's name, whatever it looks like",
		Yes: []string{`{"n":1,"password":"«correct horse»"}`, `{"secret":["«a»","«b»"]}`},
		No:  []string{`{"max_tokens":4096}`, `{"password":null,"secret":true,"token":""}`, `{"sort_key":"a1b2c3d4e5f6"}`}}
	ruleOption = &Rule{ID: "secret.option", What: "the argument of a credential's option",
		Yes: []string{"login --password «hunter2» -v", "x --token=«abc»", `["--api-key", "«abc123»"]`},
		No:  []string{"--token-file path", "--password-stdin", "use the --token flag", "--password \"$PW\"", "--max-tokens 4096"}}
	ruleCommand = &Rule{ID: "secret.command", What: "an argument that its program takes for a credential",
		Yes: []string{"curl -u bob:«hunter2» https://x.test", "mysql -u root -p'«hunter2»' db", "sshpass -p «x1y2z3» ssh h", "docker login -u u -p «hunter2»", `["curl","-u","a:«b1»"]`, "redis-cli -a «hunter2» ping", "htpasswd -b f u «hunter2»", "openssl enc -pass pass:«x1»"},
		No:  []string{"docker run -p 8080:80 x", "mkdir -p a/b", "mysql -u root -p db", "ssh -p 2222 h", "curl -u \"$U:$P\" x", "ps -u root"}}
	ruleCall = &Rule{ID: "secret.call", What: "the password among the arguments of a call that logs in",
		Yes: []string{"s.login('bob', '«hunter22»')", `req.SetBasicAuth("bob", "«hunter22»")`, "get(u, auth=('bob', '«pass1234»'))", `new mysqli("h", "root", "«r00tpw»", "db")`, `getConnection(url, "root", "«r00tpw»")`},
		No:  []string{"login(user, password)", "login('bob', pw)", "auth=(user, token)", "req.SetBasicAuth(u, p)"}}
	ruleStdin = &Rule{ID: "secret.stdin", What: "a credential given on standard input",
		Yes: []string{"echo «hunter2» | docker login --password-stdin", "echo 'u:«pw1»' | chpasswd", "sudo -S id <<< '«hunter2»'"},
		No:  []string{"cat pw | docker login --password-stdin", "echo \"$PW\" | sudo -S id"}}
	ruleTag = &Rule{ID: "secret.tag", What: "the text of a credential's element",
		Yes: []string{"<password>«hunter2»</password>", "<td>Password</td><td>«hunter2»</td>", "<key>token</key><string>«abc»</string>"},
		No:  []string{"<password></password>", "<password>${pw}</password>", "<label>Password</label><input>"}}
	ruleAuthorization = &Rule{ID: "secret.authorization", What: "the credentials of an Authorization header",
		Yes: []string{"Authorization: Bearer «abc.def»", "curl -H 'authorization: token «abcdef»' x", "Proxy-Authorization: Basic «dXNlcjpwYXNz»", `{"Authorization": "Digest «username=\"u\", response=\"x\"»"}`, "Authorization: «abc123»"},
		No:  []string{"Authorization: Bearer ${TOKEN}", "Authorization: Bearer <token>", "authorization: required", "WWW-Authenticate: Bearer realm=\"x\""}}
	ruleBearer = &Rule{ID: "secret.bearer", What: "a bearer token (AEP-0003 §9.4a)",
		Yes: []string{"sent Bearer «abc123DEF»", "bearer «abc123DEF456ghi789»"},
		No:  []string{"the bearer of good news arrived", "Bearer token", "Bearer ${TOKEN}", "bearer authentication is on"}}
	ruleBasic = &Rule{ID: "secret.basic", What: "basic credentials: base64 of user:password",
		Yes: []string{"sent Basic «dXNlcjpwYXNz»"}, No: []string{"basic authentication", "Basic instincts"}}
	ruleCookie = &Rule{ID: "secret.cookie", What: "the values of cookies",
		Yes: []string{"Cookie: sid=«abc»; theme=«dark»", "Set-Cookie: sid=«abc»; Path=/; HttpOnly", "curl -b 'sid=«abc»' x"},
		No:  []string{"the cookie: a sweet", "cookie: true"}}
	ruleURLUser = &Rule{ID: "secret.url-user", What: "the password, or the token, in front of a URL's host",
		Yes: []string{"https://bob:«hunter2»@h.test/x", "redis://:«pw»@h:6379/0", "mongodb+srv://u:«p%40w»@c.test", "u:«pw1»@tcp(h:3306)/db", "https://«ghx1a2b3c4d5e6f7g8h9»@github.com/x"},
		No:  []string{"https://h.test:8080/a@b", "git@github.com:o/r.git", "https://bob@h.test/", "https://$U:$P@h.test/", "ssh://git@h.test/x"}}
	ruleQuery = &Rule{ID: "secret.query", What: "a signature, code or key in a URL's query",
		Yes: []string{"https://h/x?sig=«abc%2Bdef123»&b=1", "https://h/cb?code=«4/0AX4XfWh123»&state=1", "https://h?ticket=«ST-1856339-aA5Yuvrxzpv8»"},
		No:  []string{"https://h/x?code=404", "https://h/x?key=name", "code=hello"}}
	ruleHook = &Rule{ID: "secret.hook", What: "the path of a URL that is a credential itself",
		Yes: []string{"https://hooks.slack.com/services/«T000/B000/XXXXXXXXabcd»", "https://discord.com/api/webhooks/123456/«abc-def_ghi»"},
		No:  []string{"https://slack.com/services/help", "https://discord.com/channels/1/2"}}
	rulePEM = &Rule{ID: "secret.pem", What: "a PEM block (AEP-0003 §9.4a), also cut off",
		Yes: []string{
			"a\n«-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----»\nb", `"«-----BEGIN PRIVATE KEY-----\nMIIEow==\n-----END PRIVATE KEY-----»\n"`,
			"«-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nAAECAwQFBgcICQoLDA0ODw»", "«-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----»",
		},
		No: []string{"-----BEGIN", "grep -n -----BEGIN file"}}
	rulePEM64 = &Rule{ID: "secret.pem-base64", What: "base64 of a private key in PEM",
		Yes: []string{"x «LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFb3dJQkFBS0NBUUVB»"},
		No:  []string{"ca: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSURCVENDQWUyZ0F3SUJBZ0lJ"}}
	rulePutty = &Rule{ID: "secret.putty", What: "the private part of a PuTTY key",
		Yes: []string{"Private-Lines: 1\n«AAAAgQCx1234567890abcdef==\nPrivate-MAC: 0123456789abcdef»"}, No: []string{"Public-Lines: 1\nAAAA"}}
	ruleJWT = &Rule{ID: "secret.jwt", What: "a JSON Web Token (AEP-0003 §9.4a)",
		Yes: []string{"s «eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpM» d"}, No: []string{"eyJ", "eyJhbGci is how they begin"}}
	ruleJWK = &Rule{ID: "secret.jwk", What: "the private members of a JSON Web Key",
		Yes: []string{`{"kty":"RSA","n":"abc","d":"«X4cTteJY_gn4FYPsXB8rdXix»"}`}, No: []string{`{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9","e":"AQAB"}`}}
	ruleKube = &Rule{ID: "secret.kube", What: "the data of a Kubernetes Secret",
		Yes: []string{"kind: Secret\ndata:\n  user: «YWRtaW4=»\n  x: «MWYyZDFl»\ntype: Opaque"}, No: []string{"kind: ConfigMap\ndata:\n  user: YWRtaW4="}}
	rulePgpass = &Rule{ID: "secret.pgpass", What: "the password of a .pgpass line",
		Yes: []string{"h.test:5432:db:bob:«hunter2»", "*:*:*:bob:«hunter2»"}, No: []string{"listening on 0.0.0.0:5432: ok", "main.go:5432:12: undefined: x"}}
	ruleSQL = &Rule{ID: "secret.sql", What: "the password of an SQL statement",
		Yes: []string{"CREATE USER x IDENTIFIED BY '«hunter2»'"}, No: []string{"the file identified by its name"}}
	ruleCrypt = &Rule{ID: "secret.crypt", What: "a password's hash, which can be guessed from",
		Yes: []string{"root:«$6$rounds=5000$saltsalt$Qz7Yt/1fA.9b3xKpLw2dVn8sRmG4hJ0cEuXiTo6yBqNvZkWlPjHgFdSaMrCeUt»:18000:0", "«$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW»"}, No: []string{"awk '{print $1$2}'"}}
	ruleDiscord = &Rule{ID: "secret.shape.discord", What: "Discord bot token",
		Yes: []string{"bot «" + "MTk4NjIyNDgzNDcxOTI1MjQ4" + ".Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs» up"}, No: []string{"a.b.c", "www.example.com.au"}}
	ruleVaultOld = &Rule{ID: "secret.shape.vault-old", What: "HashiCorp Vault token of the old form",
		Yes: []string{"login «s.1a2B3c4D5e6F7g8H9i0J1k2L» ok"}, No: []string{"s.substring(0)", "files.abcdefghijklmnopqrstuvwx"}}
	ruleListed = &Rule{ID: "listed", What: "a value that the operator lists, or of the child's sensitive environment, also encoded (§9.4b)",
		Yes: []string{"deploying «s3cr3t-deploy» now", "basic «czNjcjN0LWRlcGxve»Q==", "?k=«s3cr3t-deploy»&x=1"}, No: []string{"deploying s3cr3t-other now"}}
	ruleAgain = &Rule{ID: "secret.again", What: "a value that was hidden elsewhere in the same event",
		Yes: []string{"TOKEN=«q1w2e3r4t5»\ncurl h/«q1w2e3r4t5»"}, No: []string{"PASSWORD=${X}\ncurl h/X"}}
	ruleHome = &Rule{ID: "home", What: "the path of someone's home (§9.4c)", mark: "~",
		Yes: []string{"cp «/home/alice»/a «/Users/bob»/b", `dir «C:\Users\bob»\x`, "file://«/home/alice»/x", "projects/«-home-alice»-dev-x/a.jsonl"},
		No:  []string{"/home", "app/home/index.html", "/home/$USER/x", "https://x.test/home/page"}}
	ruleEmail = &Rule{ID: "pii.email", What: "an e-mail address (§9.4d)", mark: PIIMarker,
		Yes: []string{"ask «jane.doe+t@example.co.uk» now", "<«a@b.io»>", "?to=«jane%40example.com»"},
		No:  []string{"git@github.com:o/r.git", "npm i @scope/pkg@1.2.3", "icon@2x.png", "@app.route", "user@localhost", "golang.org/x/tools@v0.1.0"}}
	rulePhone = &Rule{ID: "pii.phone", What: "a telephone number (§9.4d)", mark: PIIMarker,
		Yes: []string{"call «+1 (555) 123-4567» tomorrow", "«555-123-4567»", "«(555) 123-4567»", "«+442079460958»", "phone: «5551234567»"},
		No:  []string{"192.168.100.200", "2024-01-15 10:30:00", "node 22.11.0", "550e8400-e29b-41d4-a716-446655440000", "978-3-16-148410-0", "+40.712776, -74.005974", "1234567890 bytes", "-0700"}}
)

// shapeRules are the rules of shapes.
var shapeRules = func() []*Rule {
	all := make([]*Rule, len(shapes))
	for i := range shapes {
		all[i] = &Rule{ID: "secret.shape." + shapes[i].id, What: shapes[i].what}
	}
	return all
}()

// withExamples are the rules of shapes with examples made from their table.
func withExamples() []*Rule {
	var all []*Rule
	for i := range shapes {
		sh := &shapes[i]
		r := *shapeRules[i]
		for _, p := range sh.prefixes {
			r.Yes = append(r.Yes, "use «"+sh.sample(p)+"» now")
		}
		r.No = []string{"use " + sh.prefixes[0] + " now"}
		all = append(all, &r)
	}
	return all
}

// sample makes a credential of the shape's form. It is put together here so
// that no such thing stands in the source.
func (sh *shape) sample(prefix string) string {
	const letters = "q7Rt2Yp9Lk4Hg6Fd8Sa3Zx5Cv1Bn0MwEjUoI"
	n := max(sh.min, min(sh.max, sh.min+2))
	if sh.max == sh.min {
		n = sh.min
	}
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		c := letters[(i*7+len(prefix))%len(letters)]
		switch {
		case is(c, sh.body):
			b.WriteByte(c)
		case is(lowerByte(c), sh.body):
			b.WriteByte(lowerByte(c))
		case isLetter(c) && is(c&^0x20, sh.body):
			b.WriteByte(c &^ 0x20)
		default:
			b.WriteByte("0123456789"[i%10])
		}
	}
	body := b.String()
	switch sh.id {
	case "sendgrid":
		body = body[:22] + "." + body + body[:11]
	case "airtable":
		body = body[:14] + "." + body[:60]
	case "asana":
		body = "1234567890123456:" + "0123456789abcdef0123456789abcdef"
	case "launchdarkly":
		body = "550e8400-e29b-41d4-a716-446655440000"
	case "twitter":
		body = strings.Repeat("q7Rt2Yp9Lk4Hg6Fd", 5)
	case "mailchimp":
		return "0123456789abcdef0123456789abcdef" + prefix + "14"
	case "telegram":
		return "123456789" + prefix + body
	case "azure":
		return "abc8" + prefix + body
	case "terraform":
		return "q7Rt2Yp9Lk4Hg6" + prefix + body
	case "huggingface":
		body = "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
	}
	return prefix + body
}

// Mark is what stands where the rule hid something.
func (r *Rule) Mark() string {
	if r.mark == "" {
		return SecretMarker
	}
	return r.mark
}
