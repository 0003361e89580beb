package redaction

import (
	"strings"
	"testing"
)

// lookalikes are texts in which nothing is to be hidden, by what they look
// like. One a line; \n in a line is a line break.
const lookalikes = `
# ids and digests
550e8400-e29b-41d4-a716-446655440000
session 550e8400-e29b-41d4-a716-446655440000 resumed
"session_id": "0f3c1a52-5a3e-4a4c-9f0d-2f2b6f0c9a11"
session_id=0f3c1a52-5a3e-4a4c-9f0d-2f2b6f0c9a11
01JX9YB2Z1QKXW6N9V0T3R5S7D
id: 01ARZ3NDEKTSV4RRFFQ69G5FAV
traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7
commit 3f786850e387550fdab836ed7e6dc881de23001b
index 83db48f..bf269f4 100644
HEAD is now at 3f78685 fix the token parser
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
image: nginx@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"integrity": "sha512-Kg3D5bGLhBLVRl5RYkk8ENGbPw+nQ3wW1Hkz1m6w5G0tN8rY7uJq2b9cV4xZ6aS8dF0gH1jK2lL3mM4nN5oO6pP7qQ==",
"integrity": "sha512-abcKey==",
github.com/spf13/cobra v1.8.1 h1:e5/vxKd/rZsfSJMUX1agtjeTDf+qv1/JdBF8gg5k9ZM=
ETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
md5 5d41402abc4b2a76b9719d911017c592
SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8 (RSA)
toolu_01A09q90qw90lq917835lq9
call_id: toolu_01ABCDEFGHJKMNPQRSTVWXYZ12
msg_01XFDUDYJgAACzvnptvVoYEL
req_011CSHoEeqs5C35K2UUqR7Fy
resp_68a1b2c3d4e5f60718293a4b5c6d7e8f
chatcmpl-9vH6yq3eT5bq8Zt1R2W3X4Y5
arn:aws:iam::123456789012:role/deploy
arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-AbCdEf
arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab
projects/p/secrets/db-password/versions/3
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1vcmUgd29yZHMgdGhhbiBhIGtleQ jane
github.com ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQDLg
# versions, times, numbers
upgraded to node 22.11.0 and pnpm 9.14.2 quickly
v1.2.3-rc.1+build.5
python 3.12.4 (main, Jun  8 2024, 18:29:57)
2024-01-15T10:30:00.123456Z
2024-01-15 10:30:00,123 INFO ready
Mon, 15 Jan 2024 10:30:00 GMT
20240115-103000
1718000000
1718000000123
ran 42 tests, 0 failures, in 3.1s
1,234,567,890 bytes
1234567890 bytes
total 123 456 789
size=10485760 offset=1234567890
-rw-r--r-- 1 root root 1234567 Jan 15 10:30 key.pem
192.168.100.200
10.0.0.1:8080
127.0.0.1 - - [15/Jan/2024:10:30:00 +0000] "GET / HTTP/1.1" 200 1234
2001:0db8:85a3:0000:0000:8a2e:0370:7334
aa:bb:cc:dd:ee:ff
40.712776, -74.005974
+40.712776 -074.005974
lat=52.520008 lon=13.404954
ISBN 978-3-16-148410-0
ISBN-10: 0-306-40615-2
order 123-4567
ticket #555-1234
0x7fff5fbff8c0
3.141592653589793
1e+10
-0700
+0200
@@ -1,7 +1,9 @@
12 files changed, 345 insertions(+), 67 deletions(-)
pid 12345 exited with code 137
06 12 34 56 78 9a
exit code: 1
status code=404
error code: ECONNREFUSED
# counts and settings beside tokens and passwords
max_tokens=4096
max_tokens: 4096
"max_tokens": 4096,
maxTokens: 4096
max_token=4096
"input_tokens": 100, "output_tokens": 200
input_tokens: 100
tokens: 512
tokens=512
total_tokens = 1234
gen_ai.usage.input_tokens=142
token_count=5
token_count: 5
tokenCount: 12
num_tokens=77
tokens per second: 42
tokens/s: 42.5
token_limit: 100000
token_budget=2000
token_type=bearer
"token_type": "bearer"
token_url: https://h.test/oauth/token
token_endpoint=https://h.test/token
token_expiry: 2024-01-15
token_ttl=3600
tokenizer=bpe
tokenizer: cl100k_base
tokenize: true
password_hash_algorithm=argon2
password_policy: strict
password_min_length=12
passwordMinLength: 12
password_file: /run/secrets/pw
password_reset_url=https://h.test/reset
password_changed_at: 2024-01-15
secret_name: db-credentials
secretName: db-credentials
secret_ref=prod/db
secretKeyRef:
imagePullSecrets:
  - name: regcred
api_key_name: main
api_key_id: 12
api_key_env: OPENAI_API_KEY
api_key_header: X-Api-Key
apiKeyEnvVar: "OPENAI_API_KEY"
key_id: 12
key=value
key: value
"key": "value",
key = name
sort_key=name
partition_key: customer
primary_key: id
primary_key=id
PRIMARY KEY (id)
FOREIGN KEY (user_id) REFERENCES users(id)
foreign_key: user_id
public_key: ssh-ed25519
publicKey: "MFkwEwYHKoZIzj0CAQ"
cache_key=users:12
cacheKey: "users:12"
object_key: a/b/c.txt
row_key=12
index_key: 4
unique_key=email
idempotency_key: 7c9e6679-7425-40de-944b-e07fc1f90ae7
Idempotency-Key: 7c9e6679-7425-40de-944b-e07fc1f90ae7
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==
keyboard=us
keyboard: us
monkey=1
hockey: 2
keynote: at ten
keywords: [a, b]
hotkey: ctrl+k
shortcut_key=ctrl+shift+p
translation_key: home.title
author: jane
authors: 3
authority: h.test
authored=2024
authentication: basic
auth: basic
auth: true
auth_type=oauth2
auth_mode: password
authEnabled: true
secretary: bob
secretariat=3
secrets: 4 found
secrets: inherit
passive=true
passenger: 3
passage: four
compass=north
bypass=true
bypass: 2
passes: 12
passed=12 failed=0
pass: 10
pass=10 fail=2
PASS: TestFoo
--- PASS: TestLogin/with_token2 (0.00s)
--- PASS: TestHTTP2 (0.12s)
pins: 4
pin: 3
pinned: true
spin=1
session: main
session=abc
cookie: true
cookies: enabled
cookie_policy: strict
credentials: include
credentials: 'same-origin'
credential.helper=store
credential_type: oauth
access: read
access_level=3
private: true
signature: func(a int) error
hash: sha256
salt: auto
code=200
code: 404
codec=h264
seed=42
seed: 1234
sid: 12
id-token: write
PWD=/srv/app
OLDPWD=/tmp
pwd: /srv/app
SSH_AUTH_SOCK=/tmp/ssh-XXXX/agent.1
XDG_SESSION_ID=3
GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/sa.json
SSL_KEY_FILE=/etc/ssl/key.pem
private_key: ./certs/server.key
ssl_certificate_key /etc/nginx/ssl/site.key;
IdentityFile ~/.ssh/id_ed25519
TOKENIZERS_PARALLELISM=false
KEYCLOAK_URL=https://h.test
KEYMAP=us
AUTHOR=jane
BYPASS_CACHE=1
# references and placeholders
password: ${PASSWORD}
password: $PASSWORD
password=$DB_PASSWORD
password="$DB_PASSWORD"
password: "${DB_PASSWORD}"
PASSWORD=$(cat /run/secrets/pw)
PASSWORD=` + "`cat pw`" + `
password: %PASSWORD%
password: {{ .Values.password }}
password: "{{ vault_password }}"
password: ${{ secrets.DB_PASSWORD }}
token: ${{ github.token }}
GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}
password: <password>
token: <your-token>
token: <your token here>
api_key: YOUR_API_KEY
api_key: "your-api-key-here"
API_KEY=your_api_key
password: ********
password: •••••••
password: xxxxxxxx
password=****
token: [REDACTED]
password: [REDACTED:secret]
token=...
token: null
token: None
"token": null,
"password": "",
password=
password = ""
token: ""
password: !vault |
token: !secret api_token
password: !Ref DbPassword
token = os.environ["TOKEN"]
token = os.environ.get("TOKEN")
token = os.getenv("TOKEN")
const token = process.env.TOKEN;
const token = process.env["TOKEN"]
apiKey: process.env.API_KEY,
apiKey: import.meta.env.VITE_API_KEY
token := os.Getenv("TOKEN")
String token = System.getenv("TOKEN");
token = ENV["TOKEN"]
token = ENV.fetch('TOKEN')
$token = getenv('TOKEN');
$token = $_ENV['TOKEN'];
password = var.db_password
password = data.aws_secretsmanager_secret_version.db.secret_string
secret_key = config.get("secret_key")
password: op://vault/item/password
--password "$PW" --user bob
--token=$TOKEN
--token-file path/to/file
--password-file=/run/secrets/pw
--password-stdin
use the --token flag
pass --password to log in
the --api-key option is required
--max-tokens 4096
--key-name main
--token TOKEN
curl -H "Authorization: Bearer $TOKEN" https://h.test
curl -H "Authorization: Bearer ${TOKEN}" https://h.test
curl -u "$USER:$PASS" https://h.test
curl -u bob https://h.test
Authorization: Bearer <token>
Authorization: Bearer {token}
'Authorization': f'Bearer {token}'
headers["Authorization"] = "Bearer " + token
headers: { Authorization: ` + "`Bearer ${token}`" + ` }
authorization: required
Authorization header is missing
WWW-Authenticate: Bearer realm="api", error="invalid_token"
WWW-Authenticate: Basic realm="x"
# code
getToken()
const token = getToken();
token = await fetchToken(user)
token = get_token(user, "x")
let token = this.getToken();
passwordField.focus()
password.length
if (!token) return;
if password == "" {
if token != nil {
if (token === null) throw new Error("no token");
return token
self.password = password
self.token = token
this.token = token;
this.apiKey = config.apiKey;
Password: req.Password,
Token: token,
{ token, user }
{token: token, user: user}
f(token=token, password=password)
login(user, password)
def login(user: str, password: str) -> str:
function login(user: string, password: string): Promise<void> {
password: string;
token?: string;
apiKey: string | undefined;
password: String,
token: Option<String>,
api_key: Optional[str] = None
Token string
Password string ` + "`json:\"password\"`" + `
type Token struct {
case "token": return x
switch token := tok.(type) {
tokens.map(token => token.value)
tokens := strings.Fields(s)
tokens = []
token = tokens[i]
token = tokens[0]
for token in tokens:
token = resp.json()["token"]
data["token"] = resp["token"]
expect(token).toBe(expected)
assert token == expected
password = input("Password: ")
password = getpass.getpass()
read -s -p "Password: " password
printf("enter password: ");
fmt.Println("token:", token)
log.Printf("token=%s", token)
fmt.Errorf("bad private key: %w", err)
panic("failed to parse private key: " + err.Error())
cmd.Env = append(cmd.Env, "PWD="+dir)
strings.HasPrefix(kv, "PASSWORD=")
SELECT password FROM users WHERE id = 1
SELECT token, secret FROM t
CREATE TABLE users (id int, password varchar(255))
ALTER TABLE users ADD COLUMN api_key text
["username", "password", "email"]
("token", "secret")
'token' : 'text'
import { token } from './token'
from auth import token
@pytest.fixture
@app.route("/login")
@Autowired
#define KEY_LEN 32
class TokenStore:
interface Secret { name: string }
unexpected token: }
Unexpected token '<', "<!DOCTYPE "... is not valid JSON
SyntaxError: Unexpected token 'export'
sk-loading-spinner-container-element
.sk-fading-circle-wrapper { color: red }
s.substring(0, 10)
kubectl get secret db -o yaml
kubectl get secrets
docker run -p 8080:80 -e PORT=80 nginx
docker run --rm -p 127.0.0.1:5432:5432 postgres
mkdir -p a/b
ssh -p 2222 bob@h
mysql -u root -p mydb
mysql -u root -p
cp -p a b
ps -u root
grep -rn password src
git log --author=jane
git config user.name jane
npm config set registry https://registry.example.com/
aws configure list
vault kv get secret/db
gh secret list
gh auth status
openssl req -newkey rsa:2048 -keyout key.pem -out csr.pem
openssl x509 -in cert.pem -noout
zip -r a.zip dir
7z x a.7z
cat pw | docker login --password-stdin
echo "$PW" | sudo -S id
echo hello | grep h
htpasswd -c file bob
# prose
the token expired
the token has expired; please log in again
your password must be 8 characters
password must be 8 characters
Password: must be at least 8 characters
the password is required
the password is too short
the password is valid until 2024-01-15
enter your password to go on
Secret: how to cook
The secret to good bread is time
It is a secret that nobody keeps
a token of appreciation
this token is 512 characters long
API keys are rotated every 90 days
the api key is missing
invalid api key
missing token
no such token
Token: the smallest unit of text
password authentication is disabled
login with password authentication
basic authentication
bearer authentication is on
the bearer of good news arrived
Bearer token
bearer tokens are sent in a header
Set the token in your environment
the key to success
the private key is stored in a file
credentials are read from the keychain
two-factor code
the session token was refreshed
cookies are used to keep you logged in
a cookie and a glass of milk
author: Jane Doe
pass the salt
PASS
ok  	example.com/x	0.412s
Passing tests: 12
# urls, mail, homes
https://example.com/path?page=2&sort=name
https://h.test/x?code=404
https://h.test/?key=name&value=1
https://h.test:8080/a@b
https://github.com/org/repo.git
https://bob@h.test/path
git@github.com:org/repo.git
ssh://git@github.com/org/repo.git
origin	git@github.com:org/repo.git (fetch)
rsync -a bob@h.test:/srv/data .
scp f.txt deploy@h.test:/srv
npm i @scope/pkg@1.2.3
react@18.2.0
lodash@4.17.21
actions/checkout@v4
golang.org/x/tools@v0.1.0
pkg@latest
icon@2x.png
user@localhost
systemctl status getty@tty1.service
postgres://localhost:5432/db
redis://127.0.0.1:6379/0
mongodb://h.test/db
https://$USER:$PASS@h.test/
https://user:${PASS}@h.test/
https://<user>:<password>@h.test/
/home
/home/$USER/x
/home/<user>/x
app/home/index.html
./home/page.tsx
https://h.test/home/page
/Users/Shared/x
src/Users/list.ts
`

func TestLookalikes(t *testing.T) {
	p := NewPipeline(Options{Home: "/home/operator", Secrets: []Secret{{"X", "q1w2e3r4t5y6u7i8"}}})
	kind, n := "", 0
	for l := range strings.SplitSeq(lookalikes, "\n") {
		if k, ok := strings.CutPrefix(l, "# "); ok {
			kind = k
			continue
		}
		if l == "" {
			continue
		}
		n++
		for how, text := range map[string]string{
			"alone":             l,
			"between lines":     "before\n" + l + "\nafter it",
			"in a JSON string":  `{"out":"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`).Replace(l) + `","n":1}`,
			"indented":          "    " + l + "\n",
			"in a diff":         "@@ -1,2 +1,2 @@\n+" + l + "\n-" + l + "\n",
			"as a string value": "",
		} {
			got, what := p.Explain(text)
			if how == "as a string value" {
				text = l
				got, what = p.Value(map[string]any{"out": l}).(map[string]any)["out"].(string), nil
			}
			if got != text {
				t.Run(kind+"/"+how+"/"+l, func(t *testing.T) {
					t.Errorf("%q\nbecame %q by %v", text, got, what)
				})
			}
		}
	}
	t.Logf("%d texts", n)
}
