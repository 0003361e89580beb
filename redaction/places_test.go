package redaction

import (
	"strings"
	"testing"
)

// places are the ways in which a credential stands in text: § is the secret,
// everything else must stay. Each is tried with every kind of value that may
// stand there.
var places = []struct {
	name, text string
	values     string // which of kinds: "w" words without signs, "d" those with digits, "s" signs too, "b" blanks too, "v" vendor shapes
}{
	// Shell.
	{"assignment before a command", "FOO_TOKEN=§ make deploy", "wv"},
	{"export", "export FOO_SECRET=§", "wsv"},
	{"export in double quotes", `export FOO_SECRET="§"`, "wbv"},
	{"export in single quotes", `export FOO_SECRET='§'; run`, "wbv"},
	{"assignment then and", "DB_PASSWORD=§ && ./run", "wv"},
	{"several assignments", "A=1 DB_PASSWORD=§ B=2 cmd", "wv"},
	{"env command", "env API_KEY=§ node app.js", "wv"},
	{"option with a blank", "app --password § --verbose", "wv"},
	{"option with equals", "app --token=§ -v", "wv"},
	{"option with equals and quotes", `app --token="§" -v`, "wbv"},
	{"option in single quotes", "app --api-key '§' -v", "wbv"},
	{"go option", "app -password=§ -x", "wv"},
	{"option at the end", "app --client-secret §", "wv"},
	{"option over lines", "app \\\n  --auth-token \\\n  § \\\n  --x", "wv"},
	{"mysql glued", "mysql -u root -p'§' db", "w"},
	{"mysql glued bare", "mysql -uroot -p§ db", "w"},
	{"mysql glued bare at the end", "mysqldump -h h -u root -p§", "w"},
	{"curl user", "curl -u admin:§ https://h.test/x", "wv"},
	{"curl user quoted", "curl -s -u 'admin:§' https://h.test/x", "wsv"},
	{"curl user long", `curl --user "admin:§" https://h.test/x`, "wv"},
	{"curl header bearer", "curl -H 'Authorization: Bearer §' https://h.test", "wv"},
	{"curl header double quotes", `curl -H "X-Api-Key: §" https://h.test`, "wv"},
	{"curl header token", `curl -H "Authorization: token §" https://h.test`, "wv"},
	{"curl header bare", `curl -H "Authorization: §" https://h.test`, "wv"},
	{"curl form data", "curl -d 'user=bob&password=§' https://h.test", "wv"},
	{"curl json data", `curl -d '{"user":"bob","password":"§"}' https://h.test`, "wv"},
	{"curl json data escaped", `curl -d "{\"user\":\"bob\",\"password\":\"§\"}" https://h.test`, "wv"},
	{"curl cookie", "curl -b 'session=§' https://h.test", "wv"},
	{"wget password", "wget --password=§ https://h.test/f", "wv"},
	{"wget header", "wget --header='Private-Token: §' https://h.test/f", "wv"},
	{"httpie", "http -a bob:§ GET h.test", "wv"},
	{"docker login", "docker login -u bob -p § registry.test", "wv"},
	{"docker run env", "docker run -e DB_PASSWORD=§ -p 80:80 img", "wv"},
	{"docker stdin", "echo § | docker login -u bob --password-stdin", "wv"},
	{"docker stdin quoted", `echo "§" | docker login -u bob --password-stdin`, "wv"},
	{"gh stdin", "gh auth login --with-token <<< §", "wv"},
	{"sudo stdin", "echo '§' | sudo -S apt update", "wv"},
	{"sshpass", "sshpass -p § ssh u@h.test", "wv"},
	{"sshpass glued", "sshpass -p'§' ssh u@h.test", "wv"},
	{"pgpassword", "PGPASSWORD=§ psql -h h", "wv"},
	{"pgpassword quoted", "PGPASSWORD='§' psql -h h", "wbv"},
	{"psql uri", "psql postgresql://bob:§@h.test:5432/db", "w"},
	{"psql dsn", `psql "host=h user=bob password=§ dbname=d"`, "wv"},
	{"aws configure", "aws configure set aws_secret_access_key §", "wv"},
	{"aws configure profile", "aws configure set aws_secret_access_key § --profile p", "wv"},
	{"npm config", "npm config set //r.test/:_authToken=§", "wv"},
	{"npm config blank", "npm config set //r.test/:_authToken §", "wv"},
	{"git clone", "git clone https://bob:§@github.com/o/r.git", "wv"},
	{"git clone token", "git clone https://x-access-token:§@github.com/o/r.git", "wv"},
	{"git remote", "origin\thttps://oauth2:§@gitlab.com/o/r.git (fetch)", "wv"},
	{"git config", "git config --global github.token §", "wv"},
	{"kubectl literal", "kubectl create secret generic x --from-literal=password=§", "wv"},
	{"kubectl token", "kubectl --token=§ get pods", "wv"},
	{"helm set", "helm install x . --set db.password=§ --set n=1", "wv"},
	{"vault put", "vault kv put secret/x password=§ user=bob", "wv"},
	{"vault login", "vault login §", "v"},
	{"gh secret", `gh secret set API_TOKEN -b "§"`, "wv"},
	{"heroku config", "heroku config:set API_TOKEN=§ -a x", "wv"},
	{"redis-cli", "redis-cli -h h -a § ping", "wv"},
	{"mongo", "mongosh -u root -p § h/db", "wv"},
	{"sqlcmd", "sqlcmd -S h -U sa -P § -Q q", "wv"},
	{"htpasswd", "htpasswd -bc f bob §", "wv"},
	{"openssl passin", "openssl rsa -in k -passin pass:§ -out o", "wv"},
	{"zip", "zip -P § -r a.zip d", "wv"},
	{"7z", "7z a -p§ a.7z d", "w"},
	{"gpg", "gpg --batch --passphrase § -d f", "wv"},
	{"ssh-keygen", "ssh-keygen -t ed25519 -N '§' -f k", "wv"},
	{"ldapsearch", "ldapsearch -D cn=a -w § -b dc=x", "wv"},
	{"smbclient", "smbclient //h/s -U bob%§", "wv"},
	{"lftp", "lftp -u bob,§ sftp://h", "wv"},
	{"rabbitmqctl", "rabbitmqctl add_user bob §", "wv"},
	{"chpasswd", "echo 'bob:§' | chpasswd", "wv"},
	{"keytool", "keytool -list -storepass § -keystore k", "wv"},
	{"sqlplus", "sqlplus scott/§@orcl", "w"},
	{"here-document", "cat > .env <<'EOF'\nA=1\nAPI_TOKEN=§\nB=2\nEOF", "wsv"},
	{"here-document as stdin", "docker login -u b --password-stdin <<EOF\n§\nEOF", "wv"},
	{"here-string", "sudo -S id <<< '§'", "wv"},
	{"setenv", "setenv API_TOKEN §", "wv"},
	{"fish", "set -gx API_TOKEN §", "wv"},
	{"setx", `setx API_TOKEN "§"`, "wbv"},
	{"cmd set", "set API_TOKEN=§", "wsv"},
	{"powershell env", "$env:API_TOKEN = '§'", "wbv"},
	{"powershell env double", `$env:API_TOKEN="§"`, "wbv"},
	{"powershell parameter", "Connect-X -Password '§' -User b", "wbv"},
	{"powershell secure string", `ConvertTo-SecureString "§" -AsPlainText -Force`, "wbv"},
	{"windows option", `app.exe /user:b /password:§ /v`, "wv"},
	{"argv in JSON", `["app", "--token", "§", "-v"]`, "wbv"},
	{"argv in JSON compact", `["app","--token","§","-v"]`, "wbv"},
	{"argv in JSON with equals", `["app","--token=§","-v"]`, "wv"},
	{"argv of curl", `["curl","-u","bob:§","https://h.test"]`, "wv"},
	{"ansible", "ansible-playbook -e 'db_password=§' p.yml", "wv"},
	{"xtrace", "+ curl -H 'Authorization: Bearer §' https://h.test", "wv"},
	{"xtrace assignment", "+ export API_TOKEN=§", "wsv"},
	{"prompt", "$ export API_TOKEN=§", "wsv"},
	{"java property option", "java -Ddb.password=§ -jar x.jar", "wv"},
	{"docker build arg", "docker build --build-arg NPM_TOKEN=§ .", "wv"},
	{"dockerfile env", "ENV API_TOKEN=§\nRUN x", "wv"},
	{"dockerfile env blank", "ENV API_TOKEN §\nRUN x", "wv"},
	{"curl proxy user", "curl -U bob:§ -x p.test:80 https://h.test", "wv"},
	{"history with number", "  512  export API_TOKEN=§", "wsv"},
	{"command substitution around", "x=$(curl -u bob:§ https://h.test)", "wv"},
	{"in bash -c", `bash -c "curl -u bob:§ https://h.test"`, "wv"},
	{"in bash -c export", `bash -c "export API_TOKEN=§; run"`, "wv"},
	{"in ssh", `ssh h "PGPASSWORD=§ psql"`, "wv"},
	{"tool call", `Bash(command: "curl -u bob:§ https://h.test")`, "wv"},

	// Dumps of the environment.
	{"env", "HOME=/x\nAPI_TOKEN=§\nTERM=xterm", "wsv"},
	{"declare", "declare -x API_TOKEN=\"§\"\ndeclare -x B=\"1\"", "wbv"},
	{"set", "A=1\nAPI_TOKEN='§'\nB=2", "wbv"},
	{"dotenv", "# c\nAPI_TOKEN=§\nPORT=80", "wsv"},
	{"dotenv quoted", "API_TOKEN=\"§\" # c\nPORT=80", "wbv"},
	{"docker inspect", `"Env": ["PATH=/bin", "API_TOKEN=§", "B=1"]`, "wv"},
	{"docker inspect lines", "\"Env\": [\n    \"API_TOKEN=§\",\n    \"B=1\"\n]", "wv"},
	{"powershell table", "Name                 Value\n----                 -----\nAPI_TOKEN            §\nPORT                 80", "wv"},
	{"heroku", "API_TOKEN:    §\nPORT:         80", "wv"},
	{"proc environ", "A=1\x00API_TOKEN=§\x00B=2", "wv"},
	{"env in JSON", `{"env":{"API_TOKEN":"§","PORT":"80"}}`, "wbv"},
	{"kubectl describe", "    Environment:\n      API_TOKEN:  §\n      PORT:       80", "wv"},
	{"k8s env list", "env:\n  - name: API_TOKEN\n    value: §\n  - name: PORT\n    value: \"80\"", "wv"},
	{"k8s env list quoted", "env:\n  - name: API_TOKEN\n    value: \"§\"\n  - name: PORT\n    value: \"80\"", "wbv"},
	{"ecs env list", `[{"name": "API_TOKEN", "value": "§"}, {"name": "PORT", "value": "80"}]`, "wbv"},
	{"systemd", "Environment=\"API_TOKEN=§\"\nExecStart=x", "wv"},
	{"github env", "  env:\n    API_TOKEN: §\n    PORT: 80", "wv"},
	{"compose list", "environment:\n  - API_TOKEN=§\n  - PORT=80", "wv"},
	{"process list", "bob 12 0.0 app --token=§ --port=80", "wv"},

	// JSON, also in strings.
	{"json", `{"user": "bob", "password": "§", "n": 1}`, "wbv"},
	{"json compact", `{"user":"bob","password":"§","n":1}`, "wbv"},
	{"json camel", `{"clientSecret":"§","clientId":"abc"}`, "wbv"},
	{"json deep", `{"a":{"b":[{"apiKey":"§"}]}}`, "wbv"},
	{"json lines", "{\n  \"a\": 1,\n  \"secretAccessKey\": \"§\",\n  \"b\": 2\n}", "wbv"},
	{"json in json", `{"body":"{\"password\":\"§\",\"n\":1}"}`, "wbv"},
	{"json in json in json", `{"body":"{\"in\":\"{\\\"password\\\":\\\"§\\\",\\\"n\\\":1}\"}"}`, "wbv"},
	{"json in json four deep", `"{\"a\":\"{\\\"b\\\":\\\"{\\\\\\\"token\\\\\\\":\\\\\\\"§\\\\\\\"}\\\"}\"}"`, "wv"},
	{"env in a json string", `{"out":"A=1\nAPI_TOKEN=§\nB=2\n"}`, "wv"},
	{"shell in a json string", `{"command":"export API_TOKEN=§ && run"}`, "wv"},
	{"curl in a json string", `{"command":"curl -H \"Authorization: Bearer §\" https://h.test"}`, "wv"},
	{"curl single in a json string", `{"command":"curl -u bob:§ https://h.test","n":1}`, "wv"},
	{"yaml in a json string", `{"content":"a: 1\npassword: §\nb: 2\n"}`, "wv"},
	{"json unicode quotes", `{\u0022password\u0022:\u0022§\u0022}`, "wv"},
	{"json html entities", `{&quot;password&quot;:&quot;§&quot;,&quot;n&quot;:1}`, "wv"},
	{"json with single quotes", `{'password': '§', 'n': 1}`, "wbv"},
	{"python repr", `{'user': 'bob', 'auth_token': '§', 'n': None}`, "wbv"},
	{"go map", "map[password:§ user:bob]", "wv"},
	{"ruby hash", `{:password=>"§", :n=>1}`, "wbv"},
	{"json header list", `{"headers":[{"name":"Authorization","value":"Bearer §"}]}`, "wv"},
	{"json header map", `{"headers":{"Authorization":"Bearer §","Accept":"*/*"}}`, "wv"},
	{"json header array", `{"Authorization":["Bearer §"],"Accept":["*/*"]}`, "wv"},
	{"json cookie", `{"headers":{"cookie":"sid=§; theme=dark"}}`, ""},

	// Configuration.
	{"yaml", "user: bob\npassword: §\nport: 80", "wv"},
	{"yaml quoted", "user: bob\npassword: \"§\"\nport: 80", "wbv"},
	{"yaml single quoted", "user: bob\npassword: '§'\nport: 80", "wbv"},
	{"yaml nested", "db:\n  password: §\n  port: 80", "wv"},
	{"yaml comment", "password: § # the old one\nport: 80", "wv"},
	{"yaml block", "api_key: |\n  §\nport: 80", "wbv"},
	{"yaml folded", "db:\n  api_key: >-\n    §\n  port: 80", "wbv"},
	{"yaml list item", "- password: §\n  user: bob", "wv"},
	{"yaml list", "passwords:\n  - §\nport: 80", "wv"},
	{"yaml flow", "db: {user: bob, password: §, port: 80}", "wv"},
	{"yaml next line", "password:\n  §\nport: 80", "wv"},
	{"yaml anchor", "password: &pw §\nport: 80", "wv"},
	{"toml", "[db]\nuser = \"bob\"\npassword = \"§\"\nport = 80", "wbv"},
	{"toml literal", "api_key = '§'\nport = 80", "wbv"},
	{"toml inline", `db = { user = "bob", password = "§", port = 80 }`, "wbv"},
	{"toml multi-line", "secret = \"\"\"§\"\"\"\nport = 80", "wv"},
	{"ini", "[db]\nuser = bob\npassword = §\nport = 80", "wv"},
	{"ini tight", "[db]\npassword=§\nport=80", "wsv"},
	{"properties", "spring.datasource.password=§\nserver.port=80", "wsv"},
	{"properties colon", "db.password: §\nport: 80", "wv"},
	{"netrc", "machine h.test login bob password §", "wv"},
	{"netrc lines", "machine h.test\n  login bob\n  password §\n", "wv"},
	{"npmrc", "//registry.example.com/:_authToken=§\nalways-auth=true", "wv"},
	{"npmrc auth", "//r.test/:_auth=§", "wv"},
	{"npmrc password", "//r.test/:_password=\"§\"", "wv"},
	{"yarnrc", "npmAuthToken: \"§\"\nnodeLinker: pnp", "wbv"},
	{"pypirc", "[pypi]\nusername = __token__\npassword = §", "wv"},
	{"pip conf", "index-url = https://bob:§@pypi.test/simple", "wv"},
	{"pgpass", "h.test:5432:db:bob:§", "w"},
	{"git credentials", "https://bob:§@github.com", "wv"},
	{"kubeconfig", "users:\n- name: a\n  user:\n    token: §\n", "wv"},
	{"k8s secret", "kind: Secret\nmetadata:\n  name: x\ndata:\n  foo: §\ntype: Opaque", "w"},
	{"k8s secret string data", "apiVersion: v1\nstringData:\n  foo: \"§\"\nkind: Secret\n", "wbv"},
	{"k8s secret json", `{"kind":"Secret","data":{"foo":"§"},"type":"Opaque"}`, "wbv"},
	{"aws credentials", "[default]\naws_access_key_id = x\naws_secret_access_key = §\nregion = eu", "wv"},
	{"aws prompt", "AWS Secret Access Key [None]: §", "wv"},
	{"xml element", "<db><user>bob</user><password>§</password></db>", "wv"},
	{"xml element attribute", `<password type="x">§</password>`, "wv"},
	{"xml attribute", `<db user="bob" password="§" port="80"/>`, "wbv"},
	{"xml add", `<add key="ApiKey" value="§" />`, "wbv"},
	{"xml property", `<property name="password" value="§"/>`, "wbv"},
	{"xml entry", `<entry key="password">§</entry>`, "wv"},
	{"hadoop", "<property><name>fs.secret.key</name><value>§</value></property>", "wv"},
	{"android", `<string name="api_key">§</string>`, "wv"},
	{"plist", "<key>ApiKey</key>\n<string>§</string>", "wv"},
	{"html input", `<input type="password" name="x" value="§">`, "wbv"},
	{"html hidden", `<input type="hidden" name="csrf_token" value="§">`, "wbv"},
	{"html table", "<tr><td>Password</td><td>§</td></tr>", "wv"},
	{"markdown table", "| key | value |\n|---|---|\n| password | § |", "w"},
	{"markdown bold", "**Password:** §\n**Port:** 80", "wv"},
	{"markdown code", "Password: `§`\nPort: 80", "wv"},
	{"markdown fence", "API key:\n\n```\n§\n```\n", "wv"},
	{"terraform", "resource \"x\" \"y\" {\n  password = \"§\"\n  port     = 80\n}", "wbv"},
	{"terraform variable", "variable \"db_password\" {\n  type    = string\n  default = \"§\"\n}", "wbv"},
	{"tfvars", "db_password = \"§\"\nport = 80", "wbv"},
	{"tfstate", `{"attributes":{"master_password":"§","id":"x"}}`, "wbv"},
	{"nginx", "proxy_set_header Authorization \"Bearer §\";", "wv"},
	{"redis conf", "requirepass §\nport 6379", "wv"},
	{"wpa", "network={\n  ssid=\"x\"\n  psk=\"§\"\n}", "wbv"},
	{"wireguard", "[Interface]\nPrivateKey = §\nAddress = 10.0.0.1/24", "w"},
	{"docker config", `{"auths":{"r.test":{"auth":"§"}}}`, ""},
	{"gradle", "signing.password=§\norg.gradle.daemon=true", "wv"},
	{"maven", "<server><id>x</id><username>bob</username><password>§</password></server>", "wv"},
	{"appsettings", `{"ConnectionStrings":{"Db":"Server=h;User Id=bob;Password=§;Encrypt=true"}}`, "w"},
	{"ansible vars", "ansible_ssh_pass: §\nansible_user: bob", "wv"},
	{"rails", "production:\n  secret_key_base: §\n", "wv"},
	{"django", "SECRET_KEY = '§'\nDEBUG = True", "wbv"},
	{"csv", "user,password,role\nbob,§,admin\n", "w"},
	{"psql table", " id | user | password \n----+------+----------\n  1 | bob  | §\n", "w"},
	{"tsv", "user\tpassword\trole\nbob\t§\tadmin\n", "w"},

	// Source code.
	{"python", "api_key = \"§\"\nport = 80", "wbv"},
	{"python typed", "api_key: str = \"§\"\nport: int = 80", "wbv"},
	{"python keyword", "connect(host=\"h\", password=\"§\", port=80)", "wbv"},
	{"python dict", "cfg = {\"password\": \"§\", \"port\": 80}", "wbv"},
	{"python index", "os.environ[\"API_TOKEN\"] = \"§\"", "wbv"},
	{"python default", "os.environ.get(\"API_TOKEN\", \"§\")", "w"},
	{"python bytes", "SECRET = b\"§\"", "wbv"},
	{"python triple", "SECRET = '''§'''", "wv"},
	{"python compare", "if password == \"§\":", "wbv"},
	{"javascript", "const apiKey = \"§\";\nlet n = 1;", "wbv"},
	{"javascript single", "const apiKey = '§';", "wbv"},
	{"javascript template", "const apiKey = `§`;", "wbv"},
	{"javascript property", "new X({ apiKey: '§', n: 1 })", "wbv"},
	{"javascript member", "process.env.API_TOKEN = '§'", "wbv"},
	{"javascript fallback", "const t = process.env.API_TOKEN || '§';", "w"},
	{"javascript header", "headers: { 'Authorization': 'Bearer §', 'Accept': '*' }", "wv"},
	{"javascript concat header", "h['Authorization'] = 'Bearer ' + '§'", "wv"},
	{"go const", "const apiToken = \"§\"", "wbv"},
	{"go struct", "Config{User: \"bob\", Password: \"§\", Port: 80}", "wbv"},
	{"go short", "password := \"§\"", "wbv"},
	{"go setenv", "os.Setenv(\"API_TOKEN\", \"§\")", "wbv"},
	{"go header", "req.Header.Set(\"Authorization\", \"Bearer §\")", "wv"},
	{"go header key", "req.Header.Set(\"X-Api-Key\", \"§\")", "wbv"},
	{"go basic auth raw", "password = `§`", "wbv"},
	{"rust", "let api_key: &str = \"§\";", "wbv"},
	{"java", "private static final String PASSWORD = \"§\";", "wbv"},
	{"kotlin", "val apiKey: String = \"§\"", "wbv"},
	{"swift", "let apiKey = \"§\"", "wbv"},
	{"c define", "#define API_TOKEN \"§\"", "wbv"},
	{"c array", "char password[] = \"§\";", "wbv"},
	{"php", "$password = '§';", "wbv"},
	{"php array", "'password' => '§',", "wbv"},
	{"php define", "define('DB_PASSWORD', '§');", "wbv"},
	{"ruby", "config.api_key = '§'", "wbv"},
	{"perl", "my $password = '§';", "wbv"},
	{"csharp", "string password = @\"§\";", "wv"},
	{"sql identified", "CREATE USER bob IDENTIFIED BY '§';", "wbv"},
	{"sql password", "ALTER USER bob WITH PASSWORD '§';", "wbv"},
	{"sql update", "UPDATE users SET password = '§' WHERE id = 1", "wbv"},
	{"sql insert", "INSERT INTO users (name, password) VALUES ('bob', '§');", "wbv"},

	// URLs.
	{"url user", "https://bob:§@h.test/x", "wv"},
	{"url no user", "redis://:§@h.test:6379/0", "wv"},
	{"url mongodb", "mongodb+srv://bob:§@c.test/db?w=1", "wv"},
	{"url amqp", "amqp://bob:§@h.test:5672/v", "wv"},
	{"url in quotes", `DATABASE_URL="postgres://bob:§@h.test:5432/db"`, "wv"},
	{"url query", "https://h.test/x?a=1&access_token=§&b=2", "wv"},
	{"url query first", "https://h.test/x?token=§", "wv"},
	{"url query api key", "GET /x?api_key=§ HTTP/1.1", "wv"},
	{"url fragment", "https://h.test/cb#access_token=§&token_type=bearer", "wv"},
	{"url jdbc", "jdbc:mysql://h/db?user=bob&password=§&ssl=true", "wv"},
	{"url encoded", "https://h.test/?u=https%3A%2F%2Fg.test%2F%3Ftoken%3D§%26a%3D1", "w"},
	{"url in json", `{"url":"https://bob:§@h.test/x","n":1}`, "wv"},
	{"url in html", `<a href="https://h.test/?access_token=§&amp;x=1">`, "wv"},
	{"url in markdown", "[x](https://h.test/?token=§)", "wv"},
	{"go dsn", "bob:§@tcp(h.test:3306)/db", "w"},
	{"oracle", "jdbc:oracle:thin:scott/§@h.test:1521:orcl", "w"},

	// Headers.
	{"header bearer", "GET / HTTP/1.1\nAuthorization: Bearer §\nAccept: */*", "wv"},
	{"header lower", "authorization: bearer §", "wv"},
	{"header verbose", "> Authorization: Bearer §\n> Accept: */*", "wv"},
	{"header proxy", "Proxy-Authorization: Bearer §", "wv"},
	{"header key", "X-Api-Key: §\nAccept: */*", "wv"},
	{"header key lower", "x-api-key: §", "wv"},
	{"header token", "X-Auth-Token: §", "wv"},
	{"header private token", "PRIVATE-TOKEN: §", "wv"},
	{"header vault", "X-Vault-Token: §", "wv"},
	{"header subscription", "Ocp-Apim-Subscription-Key: §", "wv"},
	{"header amz", "x-amz-security-token: §", "wv"},
	{"header cookie", "Cookie: sid=§; b=", "wv"},
	{"header set-cookie", "Set-Cookie: sid=§; Path=/; HttpOnly; Max-Age=3600", "wv"},
	{"header in crlf", "Authorization: Bearer §\r\nAccept: */*\r\n", "wv"},
	{"header in log", `time=x level=debug msg=req authorization="Bearer §" status=200`, "wv"},
	{"header go dump", "map[Accept:[*/*] Authorization:[Bearer §]]", "wv"},
	{"header aws", "Authorization: AWS4-HMAC-SHA256 §", "w"},
	{"bearer alone", "using Bearer § now", "v"},

	// Connection strings.
	{"azure storage", "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=§;EndpointSuffix=core.windows.net", "w"},
	{"azure bus", "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=§", "w"},
	{"ado", "Server=h;Database=d;User Id=bob;Password=§;Encrypt=true", "w"},
	{"ado pwd", "Driver={x};Server=h;Uid=bob;Pwd=§;", "w"},
	{"libpq", "host=h user=bob password=§ sslmode=require", "wv"},

	// Diffs, colours, logs.
	{"diff added", "@@ -1 +1 @@\n-DB_HOST=h\n+API_TOKEN=§\n", "wsv"},
	{"diff removed yaml", "-  password: §\n+  password: ${PASSWORD}", "wv"},
	{"diff added json", "+    \"api_key\": \"§\",\n", "wbv"},
	{"diff word", "[-password=§-] x", ""},
	{"line numbers", "     3\tAPI_TOKEN=§\n     4\tB=1", "wsv"},
	{"line numbers arrow", "     3→API_TOKEN=§\n     4→B=1", "wsv"},
	{"grep", "config/.env:3:API_TOKEN=§", "wsv"},
	{"grep yaml", "k8s/x.yaml:12:  password: §", "wv"},
	{"colour around the name", "\x1b[1mAPI_TOKEN\x1b[0m=§\n", "wsv"},
	{"colour around the value", "API_TOKEN=\x1b[32m§\x1b[0m\n", "wv"},
	{"colour in json", "\x1b[34m\"password\"\x1b[0m: \x1b[32m\"§\"\x1b[0m,", "wv"},
	{"colour inside the name", "API_\x1b[01;31mTOKEN\x1b[m=§", "wsv"},
	{"colour spelt", `{"out":"\u001b[1mAPI_TOKEN\u001b[0m=§\u001b[0m"}`, "wv"},
	{"log pairs", "level=info user=bob token=§ dur=1ms", "wv"},
	{"log json", `{"level":"info","msg":"x","token":"§","dur":1}`, "wbv"},
	{"log brackets", "[info] login(user=bob, password=§)", "wv"},
	{"log quoted", `msg="login with password=§ failed"`, "wv"},
	{"prose is", "the password is §.", "dv"},
	{"prose colon", "Use this password: §", "wv"},
	{"prose api key", "API key: §", "wv"},
	{"prose quoted", `set the token to "§" and go`, "dv"},
	{"prose backticks", "my password is `§`", "wv"},
	{"wide colon", "密码：§", "wv"},
	{"german", "Passwort: §", "wv"},
	{"expect", "expect \"assword:\"\nsend \"§\\r\"", "w"},
}

// kinds are values that stand in those places.
var kinds = map[string][]string{
	"w": {"swordfish", "hunter2x", "Tr0ub4dor3", "a1b2c3d4e5f6g7h8", "Sup3rS3cretPassw0rd", "9f8e7d6c5b4a39281706f5e4d3c2b1a0", "wJalrXUtnFEMIK7MDENGbPxRfiCYzEXAMPLEKEYq"},
	"d": {"hunter2x", "Tr0ub4dor3", "a1b2c3d4e5f6g7h8", "Sup3rS3cretPassw0rd"},
	"s": {"p@ss!w0rd", "x%y^z*1+2", "ab-cd_ef.gh~1", "aGVsbG8gd29ybGQxMjM=", "k3y/with+slash=="},
	"b": {"correct horse battery staple", "p4ss with blanks, and: signs"},
	"v": {"ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", "sk-proj-AbCdEf123456GhIjKl789012", "xoxb-123456789012-ABCDEFabcdef"},
}

func TestPlaces(t *testing.T) {
	p := NewPipeline(Options{NoPII: true})
	n := 0
	for _, pl := range places {
		for _, k := range pl.values {
			for _, v := range kinds[string(k)] {
				in := strings.Replace(pl.text, "§", v, 1)
				want := strings.Replace(pl.text, "§", SecretMarker, 1)
				n++
				got := p.Text(in)
				if got == want {
					continue
				}
				t.Run(pl.name+"/"+v, func(t *testing.T) {
					if strings.Contains(got, v) {
						t.Errorf("leak\n  in %q\n got %q", in, got)
					} else {
						t.Errorf("more is hidden than the secret, or less\n  in %q\n got %q\nwant %q", in, got, want)
					}
				})
			}
		}
	}
	t.Logf("%d cases", n)
}

// TestPlacesTogether: one secret does not shelter another. Every place is put
// next to others, on a line and on lines.
func TestPlacesTogether(t *testing.T) {
	p := NewPipeline(Options{NoPII: true})
	n := 0
	for i, a := range places {
		if !strings.ContainsAny(a.values, "wdv") {
			continue
		}
		for step := 1; step <= 7; step++ {
			b := places[(i+step*37)%len(places)]
			if !strings.ContainsAny(b.values, "wdv") {
				continue
			}
			for _, between := range []string{"\n", "\n\n", "\n# next\n"} {
				const va, vb = "q7Rt2Yp9Lk4Hg6Fd", "Zx5Cv1Bn0MwEjUo8"
				in := strings.Replace(a.text, "§", va, 1) + between + strings.Replace(b.text, "§", vb, 1)
				n++
				out := p.Text(in)
				if strings.Contains(out, va) || strings.Contains(out, vb) {
					t.Errorf("%s, then %s:\n in %q\nout %q", a.name, b.name, in, out)
				}
			}
		}
	}
	t.Logf("%d pairs", n)
}

func TestSeveralOnOneLine(t *testing.T) {
	p := NewPipeline(Options{})
	for _, in := range []string{
		`curl -H "Authorization: Bearer «abc1»" -H "X-Api-Key: «k1»" -u bob:«pw1» https://h/?token=«zz»`,
		`s3://«AKIAIOSFODNN7EXAMPLE»:«pw12»@b/k`,
		`PGPASSWORD=«a1» mysql -p«b2» -e "set password = '«c3»'"`,
		`{"token":"«a»","url":"https://u:«b»@h","cookie":"sid=«c»","key":"«AKIAIOSFODNN7EXAMPLE»"}`,
		`docker login -u u -p «p1» && docker run -e API_KEY=«k2» x`,
		`echo «x1y2» | sudo -S mysql -u root -p«z3» -e "GRANT ALL TO 'b'@'%' IDENTIFIED BY '«w4»'"`,
		`ssh h "mysql -p«a1b2»; curl -u x:«c3d4» h; export T_TOKEN=«e5f6»"`,
		`GET /?access_token=«a1»&sig=«abcdefgh12»&password=«c3» Cookie: a=«b4»; c=«d5»`,
	} {
		text, want, _ := plant(in, func(string) string { return SecretMarker })
		if got := p.Text(text); got != want {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}
}
