package redaction

import "strings"

// grade is how sure a name is that its value is a credential.
type grade uint8

const (
	noName grade = iota
	weak         // the value must look like a secret
	firm         // any value that is not a reference, a path or a URL
	floor        // the words of AEP-0003 §9.4a: any value that is not a reference
)

// kind says how the value of a name is written.
type kind uint8

const (
	plain         kind = iota
	authorization      // scheme and credentials
	cookies            // a=b; c=d
	numeric            // pin, otp: digits count
	phrase             // a sentence of words
	userPass           // may be user:password
	workingDir         // PWD: a path, unless it is not
)

// name is what the words of an identifier say about its value.
type name struct {
	grade    grade
	kind     kind
	plural   bool // a collection: its strings may be names of secrets
	quantity bool // max_token: a number is a number
	password bool // … password, passwd: never a word of grammar, as token and secret are
	compound bool // of several words
	upper    bool // as environment variables are written
}

// maxName bounds an identifier; longer ones are not names.
const maxName = 96

// maxNames bounds the memory of identifiers that were judged before.
const maxNames = 512

// names judges identifiers, and remembers what it said.
type names struct {
	words
	known map[string]name
}

func (ns *names) of(id, before string) name {
	if before != "" {
		return ns.classify(id, before)
	}
	if n, ok := ns.known[id]; ok {
		return n
	}
	n := ns.classify(id, "")
	if ns.known == nil || len(ns.known) >= maxNames {
		ns.known = make(map[string]name, maxNames/4)
	}
	ns.known[strings.Clone(id)] = n
	return n
}

// words is an identifier in pieces: split at anything but letters and digits,
// at camelCase humps and between letters and digits, in lower case.
type words struct {
	buf  [maxName]byte
	ends [24]uint8
	n    int
}

func (w *words) at(i int) string {
	if i < 0 || i >= w.n {
		return ""
	}
	b := uint8(0)
	if i > 0 {
		b = w.ends[i-1]
	}
	return string(w.buf[b:w.ends[i]])
}

// split fills w; it reports whether the identifier has no lower-case letter.
func (w *words) split(s string) (upperOnly bool) {
	w.n = 0
	upperOnly = true
	n := 0
	begin := 0
	cut := func() {
		if n > begin && w.n < len(w.ends) {
			w.ends[w.n] = uint8(n)
			w.n++
			begin = n
		} else {
			n = begin
		}
	}
	for i := 0; i < len(s) && n < maxName; i++ {
		c := s[i]
		switch {
		case c >= 'A' && c <= 'Z':
			if i > 0 {
				p := s[i-1]
				hump := p >= 'a' && p <= 'z'
				tail := p >= 'A' && p <= 'Z' && i+1 < len(s) && s[i+1] >= 'a' && s[i+1] <= 'z' && !(s[i+1] == 's' && (i+2 == len(s) || !isLetter(s[i+2])))
				if hump || tail || isDigit(p) {
					cut()
				}
			}
			w.buf[n] = c + 'a' - 'A'
			n++
		case c >= 'a' && c <= 'z' || c >= 0x80:
			if i > 0 && isDigit(s[i-1]) {
				cut()
			}
			upperOnly = upperOnly && c >= 0x80
			w.buf[n] = c
			n++
		case isDigit(c):
			if i > 0 && !isDigit(s[i-1]) {
				cut()
			}
			w.buf[n] = c
			n++
		default:
			cut()
		}
	}
	cut()
	return upperOnly
}

func set(list string) map[string]bool {
	words := strings.Fields(list)
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

var (
	// beforeKey are the words that make "… key" a credential whatever its
	// value; beforeWeakKey those after which it must look like one; any other
	// word too, unless notKey says that such keys are structure.
	beforeKey = set(`api access secret private signing sign encryption encrypt decryption decrypt master account shared
		storage subscription ingestion deploy webhook hmac aes rsa jwt crypto wrapping cipher functions function
		integration routing sas auth authentication admin preshared pre license licence recovery session psk ssh
		restricted live internal partner merchant billing bot pat bearer unseal unlock fernet`)
	notKey = set(`public primary foreign sort partition cache object row index unique map dict hash lookup group range
		translation i18n query route event shortcut hot arrow idempotency websocket surrogate composite natural
		candidate alternate super clustering shard join order enter escape tab modifier hotkey
		keyboard answer turn low monkey don hockey turkey fingerprint host state label property prop param field
		column json yaml item list entry node react ng tracking dedupe dedup bundle message msg locale lang
		register registry env environment header attribute attr tag config setting option metric measurement
		localstorage s3 bucket socket blob file path name ordering sorting grouping pub`)

	// beforeTokens are the words that make "… tokens" credentials rather than
	// pieces of a text.
	beforeTokens = set(`access refresh api auth bearer session csrf personal bot id device push deploy jwt oauth`)

	// besides are words after the credential's own that do not change what the
	// value is.
	besides = set(`value val v string str plain plaintext raw new old current confirm confirmation confirmed again
		repeat repeated retype data base base64 b64 encoded enc encrypted default backup secondary override local
		remote ro rw here original real actual temp temporary initial root admin`)
	stages = set(`prod production dev development test testing live staging stage stg sandbox ci eu us qa uat demo preprod`)

	quantities = set(`max min num n total count per limit input output prompt completion cached cache reasoning used
		remaining budget avg mean new context maximum minimum number candidates thinking thoughts tool system text audio
		image rejected accepted prediction`)

	// credCodes are the words before "code" that make it a credential.
	credCodes = set(`mfa otp totp verification auth authorization authentication security sms login backup recovery access pin passcode
		confirmation fa factor device unlock activation one time`)

	// passTails are compounds written as one word.
	passTails = set(`dbpass userpass mypass rootpass smtppass sshpass mailpass ftppass sqlpass adminpass authpass keypass storepass
		proxypass httppass requirepass masterpass loginpass basicpass ldappass bindpass keystorepass truststorepass srcstorepass
		deststorepass newpass oldpass userpw dbpw rootpw bindpw rootbindpw secretbase smtppwd masterauth`)
	foreignPass = set(`passwort kennwort contrasena contraseña senha wachtwoord motdepasse пароль 密码 密碼 パスワード 비밀번호 hasło haslo parola`)
)

// classify judges an identifier by its last words. before is the word that
// stands before it in the text with one blank between ("API Key"), or "".
func (w *words) classify(id, before string) name {
	var n name
	n.upper = w.split(id)
	k := w.n
	if k == 0 {
		return n
	}
	// Numbers, and words beside the point, at the end.
	stage := false
	for k > 1 {
		l := w.at(k - 1)
		switch {
		case isDigit(l[0]), besides[l]:
		case stages[l] && (n.upper || k > 2 || w.isCredential(w.at(k-2), w.at(k-3))):
			stage = true
		default:
			goto stripped
		}
		k--
	}
stripped:
	last, prev := w.at(k-1), w.at(k-2)
	if k == 1 && before != "" {
		prev = before
	}
	for i := range k - 1 {
		if quantities[w.at(i)] {
			n.quantity = true
		}
	}
	n.password = ends(last, "password") || ends(last, "passwd")
	n.compound = k > 1
	switch {
	case n.password, ends(last, "secret"), ends(last, "token"), ends(last, "apikey"),
		last == "key" && prev == "api":
		n.grade = floor
	case ends(last, "passphrase"), ends(last, "passcode"), passTails[last], foreignPass[last],
		last == "word" && prev == "pass", last == "phrase" && prev == "pass":
		n.grade = firm
	case last == "phrase" && (prev == "seed" || prev == "recovery" || prev == "secret" || prev == "backup"), last == "mnemonic",
		last == "words" && (prev == "seed" || prev == "recovery"):
		n.grade, n.kind = firm, phrase
	case last == "pwd", last == "pw", ends(last, "pwd") && len(last) > 4:
		n.grade, n.kind = firm, workingDir
	case last == "pass":
		n.grade = firm
		if k == 1 {
			n.grade = weak
			n.kind = userPass
		}
	case last == "key":
		n.grade = keyGrade(prev)
	case last == "keys" && beforeKey[prev], last == "tokens" && beforeTokens[prev], last == "secrets" && (prev == "client" || prev == "app"):
		n.grade, n.plural = floor, true
	case last == "keys" && prev != "" && !notKey[prev]:
		n.grade, n.plural = weak, true
	case ends(last, "key") && len(last) > 4 && keyGrade(last[:len(last)-3]) == firm:
		n.grade = firm
	case last == "authorization":
		n.grade, n.kind = firm, authorization
		if prev == "proxy" || k == 1 || n.upper {
			n.grade = floor
		}
	case last == "auth":
		n.grade, n.kind = weak, userPass
		if strings.HasPrefix(id, "_auth") {
			n.grade = floor
		}
	case last == "cookie":
		n.grade, n.kind = firm, cookies
	case last == "cookies":
		n.grade, n.kind, n.plural = weak, cookies, true
	case last == "credential", last == "credentials", last == "creds", last == "cred":
		n.grade, n.kind = weak, userPass
		n.plural = last != "credential" && last != "cred"
	case last == "otp", last == "totp", last == "pin" && (k == 1 || prev != "gpio"), last == "cvv", last == "cvc",
		last == "code" && (credCodes[prev] || k == 1 && credCodes[before]):
		n.grade, n.kind = weak, numeric
	case last == "codes" && (credCodes[prev] || k == 1 && credCodes[before]):
		n.grade, n.kind, n.plural = weak, numeric, true
	case last == "psk", last == "sessid", last == "jsessionid", last == "phpsessid":
		n.grade = firm
	case last == "jwt", last == "bearer", last == "pat", last == "sid", last == "sas", last == "seed", last == "webhook",
		last == "hash" && ends(prev, "password"), last == "id" && prev == "key" && w.at(k-3) == "access",
		last == "community" && prev == "snmp":
		n.grade = weak
	case last == "passwords":
		n.grade, n.plural = floor, true
	case last == "tokens", last == "secrets", last == "apikeys", last == "passphrases":
		n.grade, n.plural = weak, true
	}
	if stage && n.grade == firm {
		n.grade = weak
	}
	return n
}

// isCredential says whether a word ends a credential's name.
func (w *words) isCredential(last, prev string) bool {
	return ends(last, "password") || ends(last, "passwd") || ends(last, "secret") || ends(last, "token") || ends(last, "apikey") ||
		last == "pass" || last == "key" && (prev == "api" || keyGrade(prev) == firm)
}

func keyGrade(prev string) grade {
	switch {
	case prev == "api":
		return floor
	case beforeKey[prev]:
		return firm
	case notKey[prev]:
		return noName
	}
	return weak
}

func ends(s, tail string) bool { return strings.HasSuffix(s, tail) }
