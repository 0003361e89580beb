package redaction

import (
	"encoding/base64"
	"strings"
)

// shape is a credential that is known by its own look: a prefix and a body.
type shape struct {
	id, what string
	prefixes []string
	body     charset
	min, max int
	digits   bool                                // the body must hold a digit
	mixed    bool                                // … and look random
	check    func(s string, start, end int) bool // anything more
	back     func(s string, i int) int           // where it begins, when something stands before the prefix; or -1
}

// shapes are the vendors' own key formats. A shape is here when its prefix is
// its vendor's, so that nothing else looks like it.
var shapes = []shape{
	{id: "aws-key-id", what: "AWS access key id", prefixes: []string{"AKIA", "ASIA", "ABIA", "ACCA"}, body: upper | digit, min: 16, max: 16},
	{id: "aws-bedrock", what: "Amazon Bedrock API key", prefixes: []string{"ABSK", "bedrock-api-key-"}, body: base64std | equals, min: 40, max: 400, mixed: true},
	{id: "github", what: "GitHub token", prefixes: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"}, body: alnum | under, min: 20, max: 255},
	{id: "github-fine", what: "GitHub fine-grained token", prefixes: []string{"github_pat_"}, body: alnum | under, min: 20, max: 255},
	{id: "gitlab", what: "GitLab token", prefixes: []string{"glpat-", "gldt-", "glptt-", "glrt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-", "glffct-", "glcbt-", "glwt-", "GR1348941"}, body: base64url | dot, min: 16, max: 320},
	{id: "slack", what: "Slack token", prefixes: []string{"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe-", "xoxc-", "xoxd-", "xoxe.xoxp-", "xoxe.xoxb-", "xapp-"}, body: alnum | dash | plusSlash | equals, min: 10, max: 400, digits: true},
	{id: "openai", what: "OpenAI-style key", prefixes: []string{"sk-", "sess-"}, body: base64url, min: 16, max: 255, digits: true, check: func(s string, b, e int) bool { return longRun(s[b:e], 12) }},
	{id: "anthropic", what: "Anthropic key", prefixes: []string{"sk-ant-"}, body: base64url, min: 8, max: 255},
	{id: "langfuse", what: "Langfuse key", prefixes: []string{"pk-lf-"}, body: base64url, min: 16, max: 255, digits: true},
	{id: "google-api", what: "Google API key", prefixes: []string{"AIza"}, body: base64url, min: 30, max: 40},
	{id: "google-oauth", what: "Google OAuth credential", prefixes: []string{"ya29.", "GOCSPX-", "1//0"}, body: base64url | dot, min: 20, max: 2048, mixed: true},
	{id: "stripe", what: "Stripe key", prefixes: []string{"sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "sk_prod_", "rk_prod_"}, body: alnum | plusSlash | equals | under, min: 10, max: 255},
	{id: "twilio", what: "Twilio key", prefixes: []string{"SK"}, body: digit | hexLower, min: 32, max: 32, digits: true},
	{id: "sendgrid", what: "SendGrid key", prefixes: []string{"SG."}, body: base64url | dot, min: 30, max: 80, mixed: true, check: func(s string, b, e int) bool { return strings.IndexByte(s[b+3:e], '.') > 0 }},
	{id: "mailgun", what: "Mailgun key", prefixes: []string{"key-"}, body: digit | hexLower, min: 32, max: 32, digits: true},
	{id: "mailchimp", what: "Mailchimp key", prefixes: []string{"-us"}, body: digit, min: 1, max: 2, back: mailchimp},
	{id: "brevo", what: "Brevo key", prefixes: []string{"xkeysib-", "xsmtpsib-"}, body: alnum | dash, min: 30, max: 120},
	{id: "npm", what: "npm token", prefixes: []string{"npm_"}, body: alnum, min: 30, max: 60},
	{id: "pypi", what: "PyPI token", prefixes: []string{"pypi-"}, body: base64url, min: 40, max: 1000, mixed: true},
	{id: "rubygems", what: "RubyGems key", prefixes: []string{"rubygems_"}, body: digit | hexLower, min: 40, max: 48},
	{id: "huggingface", what: "Hugging Face token", prefixes: []string{"hf_", "api_org_"}, body: alnum, min: 25, max: 60, check: func(s string, b, e int) bool { return strings.ContainsAny(s[b:e], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") }},
	{id: "digitalocean", what: "DigitalOcean token", prefixes: []string{"dop_v1_", "doo_v1_", "dor_v1_"}, body: digit | hexLower, min: 40, max: 64},
	{id: "shopify", what: "Shopify token", prefixes: []string{"shpat_", "shpca_", "shppa_", "shpss_", "shptka_"}, body: alnum, min: 24, max: 48},
	{id: "square", what: "Square token", prefixes: []string{"sq0atp-", "sq0csp-", "sq0idp-", "EAAAE"}, body: base64url, min: 20, max: 100, digits: true},
	{id: "telegram", what: "Telegram bot token", prefixes: []string{":AA"}, body: base64url, min: 30, max: 36, back: telegram},
	{id: "azure", what: "Azure AD client secret", prefixes: []string{"Q~"}, body: base64url | dot | tilde, min: 31, max: 36, back: azureSecret},
	{id: "vault", what: "HashiCorp Vault token", prefixes: []string{"hvs.", "hvb.", "hvr."}, body: base64url, min: 24, max: 300, mixed: true},
	{id: "terraform", what: "Terraform Cloud token", prefixes: []string{".atlasv1."}, body: base64url | equals, min: 40, max: 80, back: terraformHead},
	{id: "databricks", what: "Databricks token", prefixes: []string{"dapi"}, body: digit | hexLower | dash, min: 32, max: 36, digits: true},
	{id: "grafana", what: "Grafana token", prefixes: []string{"glsa_", "glc_", "eyJrIjoi"}, body: alnum | under | plusSlash | equals, min: 30, max: 400},
	{id: "linear", what: "Linear key", prefixes: []string{"lin_api_", "lin_oauth_"}, body: alnum, min: 30, max: 64},
	{id: "notion", what: "Notion token", prefixes: []string{"ntn_", "secret_"}, body: alnum, min: 40, max: 60, digits: true},
	{id: "postman", what: "Postman key", prefixes: []string{"PMAK-"}, body: alnum | dash, min: 40, max: 80, digits: true},
	{id: "doppler", what: "Doppler token", prefixes: []string{"dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."}, body: alnum | under | dot | dash, min: 30, max: 80, mixed: true},
	{id: "fly", what: "Fly.io token", prefixes: []string{"fo1_", "fm1_", "fm1a_", "fm1r_", "fm2_"}, body: alnum | under | dash | plusSlash | equals, min: 30, max: 4096, mixed: true},
	{id: "age", what: "age secret key", prefixes: []string{"AGE-SECRET-KEY-", "AGE-PLUGIN-"}, body: upper | digit | dash, min: 40, max: 200},
	{id: "1password", what: "1Password service token", prefixes: []string{"ops_eyJ"}, body: base64std | equals | under | dash, min: 40, max: 2000},
	{id: "airtable", what: "Airtable token", prefixes: []string{"pat"}, body: alnum | dot, min: 70, max: 90, digits: true, check: func(s string, b, e int) bool { return at(s, b+17) == '.' }},
	{id: "atlassian", what: "Atlassian token", prefixes: []string{"ATATT3", "ATCTT3", "ATBB"}, body: base64url | equals, min: 24, max: 400, digits: true},
	{id: "asana", what: "Asana token", prefixes: []string{"1/1", "2/1"}, body: digit | colon | plusSlash | hexLower, min: 40, max: 80, check: func(s string, b, e int) bool { return strings.IndexByte(s[b:e], ':') > 0 }},
	{id: "artifactory", what: "Artifactory key", prefixes: []string{"AKCp", "cmVmdGtu"}, body: alnum, min: 50, max: 100},
	{id: "alibaba", what: "Alibaba Cloud access key id", prefixes: []string{"LTAI"}, body: alnum, min: 12, max: 24, digits: true},
	{id: "tencent", what: "Tencent Cloud secret id", prefixes: []string{"AKID"}, body: alnum, min: 32, max: 36, digits: true},
	{id: "clojars", what: "Clojars token", prefixes: []string{"CLOJARS_"}, body: alnum, min: 40, max: 64},
	{id: "dynatrace", what: "Dynatrace token", prefixes: []string{"dt0c01.", "dt0s01.", "dt0s02."}, body: alnum | dot, min: 40, max: 100},
	{id: "newrelic", what: "New Relic key", prefixes: []string{"NRAK-", "NRII-", "NRJS-", "NRIQ-", "NRRA-"}, body: alnum | dash | under, min: 16, max: 48},
	{id: "sentry", what: "Sentry token", prefixes: []string{"sntrys_", "sntryu_", "sntrya_"}, body: alnum | under | plusSlash | equals, min: 30, max: 500},
	{id: "planetscale", what: "PlanetScale credential", prefixes: []string{"pscale_tkn_", "pscale_oauth_", "pscale_pw_"}, body: base64url | dot | equals, min: 20, max: 80},
	{id: "pulumi", what: "Pulumi token", prefixes: []string{"pul-"}, body: digit | hexLower, min: 32, max: 40},
	{id: "perplexity", what: "Perplexity key", prefixes: []string{"pplx-"}, body: alnum, min: 30, max: 60},
	{id: "model-service", what: "Groq, xAI, Replicate and similar keys", prefixes: []string{"gsk_", "xai-", "r8_", "tgp_v1_", "fw_", "csk-", "nvapi-", "jina_", "pcsk_", "tvly-", "fc-", "lsv2_pt_", "lsv2_sk_", "voyage-ai-", "sk_car_", "e2b_"}, body: base64url, min: 28, max: 200, digits: true, mixed: true},
	{id: "heroku", what: "Heroku key", prefixes: []string{"HRKU-"}, body: base64url, min: 30, max: 70},
	{id: "netlify", what: "Netlify token", prefixes: []string{"nfp_", "nfc_"}, body: alnum, min: 30, max: 60},
	{id: "vercel", what: "Vercel token", prefixes: []string{"vcp_", "vck_", "vca_", "vci_", "vcr_", "vercel_blob_rw_"}, body: base64url, min: 20, max: 90, mixed: true},
	{id: "supabase", what: "Supabase key", prefixes: []string{"sbp_", "sb_secret_"}, body: base64url, min: 20, max: 60, digits: true},
	{id: "render", what: "Render key", prefixes: []string{"rnd_"}, body: alnum, min: 24, max: 60, digits: true},
	{id: "prefect", what: "Prefect key", prefixes: []string{"pnu_", "pnb_"}, body: alnum, min: 30, max: 40},
	{id: "readme", what: "ReadMe key", prefixes: []string{"rdme_"}, body: alnum, min: 50, max: 80},
	{id: "figma", what: "Figma token", prefixes: []string{"figd_", "figo_", "figu_"}, body: base64url, min: 30, max: 60, digits: true},
	{id: "duffel", what: "Duffel token", prefixes: []string{"duffel_test_", "duffel_live_"}, body: base64url | equals, min: 30, max: 60},
	{id: "easypost", what: "EasyPost key", prefixes: []string{"EZAK", "EZTK"}, body: alnum, min: 50, max: 60},
	{id: "flutterwave", what: "Flutterwave key", prefixes: []string{"FLWSECK_TEST-", "FLWSECK-"}, body: alnum | dash, min: 12, max: 48},
	{id: "frameio", what: "Frame.io token", prefixes: []string{"fio-u-"}, body: base64url | equals, min: 40, max: 80},
	{id: "infracost", what: "Infracost key", prefixes: []string{"ico-"}, body: alnum, min: 32, max: 32, digits: true},
	{id: "octopus", what: "Octopus Deploy key", prefixes: []string{"API-"}, body: upper | digit, min: 24, max: 32, digits: true},
	{id: "openshift", what: "OpenShift token", prefixes: []string{"sha256~"}, body: base64url, min: 40, max: 48},
	{id: "contentful", what: "Contentful token", prefixes: []string{"CFPAT-"}, body: base64url, min: 40, max: 50},
	{id: "launchdarkly", what: "LaunchDarkly key", prefixes: []string{"api-", "sdk-", "mob-"}, body: digit | hexLower | dash, min: 36, max: 36, check: func(s string, b, e int) bool { return isUUID(s[b+4 : e]) }},
	{id: "braintree", what: "PayPal Braintree token", prefixes: []string{"access_token$production$", "access_token$sandbox$"}, body: alnum | under, min: 16, max: 80},
	{id: "facebook", what: "Facebook token", prefixes: []string{"EAAC", "EAAM", "EAAG", "EAAB", "EAAJ"}, body: alnum, min: 80, max: 400, mixed: true},
	{id: "twitter", what: "Twitter bearer token", prefixes: []string{"AAAAAAAAAAAAAAAAAAAA"}, body: alnum | under, min: 60, max: 120, check: func(s string, b, e int) bool { return randomish(s[e-40 : e]) }},
	{id: "docker", what: "Docker Hub token", prefixes: []string{"dckr_pat_", "dckr_oat_"}, body: base64url, min: 20, max: 40},
	{id: "service", what: "keys of Tailscale, Cloudflare, Trello, Atlassian, WakaTime and other services", prefixes: []string{"tskey-", "CCIPAT_", "cfat_", "cfut_", "cf-pat-", "sm_aat_", "sm_pat_", "sm_sat_", "tk-us-", "lip_", "waka_", "bkua_", "jfrog_", "oy2", "EAAl", "ATTA", "ptla_", "ptlc_", "phx_", "phc_", "dd_pat_", "dnkey-", "rpa_", "rps_", "whpat_", "ubp_", "sgp_", "1Password_", "v2.local.", "v4.local.", "napi_", "neon_", "xnd_", "qstash_"}, body: base64url | dot | colon, min: 16, max: 300, digits: true, mixed: true},
	{id: "cloudflare-ca", what: "Cloudflare origin CA key", prefixes: []string{"v1.0-"}, body: digit | hexLower | dash, min: 100, max: 200},
	{id: "mapbox", what: "Mapbox secret token", prefixes: []string{"sk.eyJ", "tk.eyJ"}, body: base64url | dot, min: 40, max: 300},
	{id: "infisical", what: "Infisical and Unkey tokens", prefixes: []string{"st.v1.", "st.dev.", "st.prod.", "unkey_", "inf_"}, body: base64url | dot, min: 30, max: 200, mixed: true, digits: true},
}

// mailchimp: 32 hex digits stand before -us1.
func mailchimp(s string, i int) int {
	b := i - 32
	if b < 0 || runOf(s[:i], b, digit|hexLower) != i || !edge(s, b) {
		return -1
	}
	return b
}

// telegram: the bot's number stands before :AA.
func telegram(s string, i int) int {
	b := i
	for b > 0 && isDigit(s[b-1]) && i-b < 12 {
		b--
	}
	if i-b < 6 || !edge(s, b) && !hasFold(s, b-3, "bot") {
		return -1
	}
	return b
}

// azureSecret: three characters and a digit stand before Q~.
func azureSecret(s string, i int) int {
	b := i - 4
	if b < 0 || !isDigit(s[i-1]) || runOf(s[:i], b, base64url|dot|tilde) != i {
		return -1
	}
	return b
}

// terraformHead: fourteen characters stand before .atlasv1.
func terraformHead(s string, i int) int {
	b := i - 14
	if b < 0 || runOf(s[:i], b, alnum) != i || !edge(s, b) {
		return -1
	}
	return b
}

// dotAt finds the tokens that have no prefix but dots in their places:
// Discord's three parts, and Vault's first ones (s.… and b.…).
func (sc *scan) dotAt(i int) {
	s := sc.s
	if i < sc.low {
		return
	}
	if at(s, i+7) == '.' || at(s, i+8) == '.' {
		m := i + 7
		if s[m] != '.' {
			m++
		}
		b := i
		for b > sc.low && is(s[b-1], base64url) && i-b < 30 {
			b--
		}
		e := runOf(s, m+1, base64url)
		if n := i - b; n >= 23 && n <= 28 && runOf(s[:m], i+1, base64url) == m && e-m-1 >= 27 && e-m-1 <= 40 && strings.IndexByte("MNO", s[b]) >= 0 && randomish(s[m+1:e]) {
			sc.hide(b, e, ruleDiscord)
			return
		}
	}
	if c := at(s, i-1); (c == 's' || c == 'b') && edge(s, i-1) && at(s, i-2) != '.' && at(s, i-2) != '_' {
		if e := runOf(s, i+1, alnum); e-i-1 == 24 && !is(at(s, e), word|dot) && at(s, e) != '(' && changes(s[i+1:e]) >= 8 {
			sc.hide(i-1, e, ruleVaultOld)
		}
	}
}

// longRun: a run of n letters and digits with both in it.
func longRun(v string, n int) bool {
	for i := 0; i < len(v); {
		j := runOf(v, i, alnum)
		if j-i >= n && strings.ContainsAny(v[i:j], "0123456789") && strings.IndexFunc(v[i:j], func(r rune) bool { return isLetter(byte(r)) }) >= 0 {
			return true
		}
		i = max(j, i+1)
	}
	return false
}

func shapeTriggers() []trigger {
	var all []trigger
	for i := range shapes {
		sh := &shapes[i]
		r := shapeRules[i]
		for _, prefix := range sh.prefixes {
			all = append(all, trigger{strings.ToLower(prefix), func(sc *scan, start, end int) {
				s := sc.s
				if s[start:end] != prefix {
					return
				}
				b := start
				if sh.back != nil {
					if b = sh.back(s, start); b < sc.low {
						return
					}
				} else if !edge(s, start) {
					return
				}
				e := end + runOf(s[end:min(len(s), end+sh.max+1)], 0, sh.body)
				if sh.max < 64 && e-end > sh.max && is(s[end+sh.max-1], alnum) && is(s[end+sh.max], alnum) {
					return // longer than any of its kind
				}
				for e > end && (s[e-1] == '.' || s[e-1] == '-' && e == len(s) || s[e-1] == ':' || s[e-1] == '/' && sh.body&plusSlash == 0) {
					e--
				}
				if e-end < sh.min {
					return
				}
				body := s[end:e]
				if sh.digits && !strings.ContainsAny(body, "0123456789") || sh.mixed && !randomish(body) {
					return
				}
				if sh.check != nil && !sh.check(s, start, e) {
					return
				}
				if isMask(strings.TrimLeft(body, "-")) || allSame(body) {
					return
				}
				sc.hide(b, runOf(s, e, sh.body), r)
				if sh.id == "aws-key-id" {
					sc.awsSecretAfter(e)
				}
			}})
		}
	}
	return all
}

// awsSecretAfter: the 40 characters that go with an access key id stand soon
// after it, in a CSV or on a line.
func (sc *scan) awsSecretAfter(i int) {
	s := sc.s
	limit := min(len(s), i+120)
	for k := i; k < limit; {
		if !is(s[k], base64std) {
			k++
			continue
		}
		e := runOf(s[:min(len(s), k+64)], k, base64std)
		if v := s[k:e]; len(v) == 40 && runOf(v, 0, hexa) < 40 && changes(v) >= 8 && at(s, e) != '=' {
			sc.hideValue(k, e, shapeRules[0])
			return
		}
		k = e
	}
}

func allSame(v string) bool {
	for i := 1; i < len(v); i++ {
		if v[i] != v[0] {
			return false
		}
	}
	return true
}

// jwtAt: eyJ….….…, also unsigned and encrypted (five parts), also cut off.
func (sc *scan) jwtAt(start, end int) {
	s := sc.s
	if s[start:end] != "eyJ" || !edge(s, start) || start < sc.plain {
		return
	}
	e := runOf(s, end, base64url)
	sc.plain = e
	if e-start < 10 || at(s, e) != '.' {
		return
	}
	e2 := runOf(s, e+1, base64url)
	if e2-e < 5 {
		return
	}
	e = e2
	for n := 0; n < 3 && at(s, e) == '.'; n++ {
		e2 := runOf(s, e+1, base64url)
		if e2 == e+1 && n > 0 {
			break
		}
		e = e2
	}
	sc.hide(start, e, ruleJWT)
}

// base64PEMAt: base64 of "-----BEGIN", as kubeconfigs and CI variables hold
// keys.
func (sc *scan) base64PEMAt(start, end int) {
	s := sc.s
	if s[start:end] != "LS0tLS1CRUdJTi" || start < sc.plain {
		return
	}
	e := runOf(s, end, base64std|equals)
	sc.plain = e
	if e-start < 48 {
		return
	}
	head, _ := base64.StdEncoding.DecodeString(s[start : start+48])
	if !strings.Contains(string(head), "PRIVATE") && !strings.Contains(string(head), "OPENSSH") {
		return
	}
	for e < len(s) && (s[e] == '\n' || s[e] == '\\' && at(s, e+1) == 'n') && e-start < maxBlock { // folded
		k := e + 1
		if s[e] == '\\' {
			k++
		}
		k = skipBlank(s, k)
		e2 := runOf(s, k, base64std|equals)
		if e2-k < 20 || e2 < len(s) && !isSpace(s[e2]) && s[e2] != '\\' {
			break
		}
		e = e2
	}
	sc.hide(start, e, rulePEM64)
}

// pemAt: "-----BEGIN …-----" up to its END; without one, up to the end of what
// looks like its body.
func (sc *scan) pemAt(start, end int) {
	s := sc.s
	b := start
	for b > sc.low && s[b-1] == '-' {
		b--
	}
	k := end
	for k < len(s) && (isWord(s[k]) || s[k] == ' ' || s[k] == '/') && k-end < 64 {
		k++
	}
	if k == end || at(s, k) != '-' {
		return
	}
	label := strings.TrimSpace(s[end:k])
	k = runOf(s, k, dash)
	limit := min(len(s), k+maxBlock*2)
	rest := s[k:limit]
	// Not beyond where the next one begins.
	if next := strings.Index(rest, "BEGIN "); next >= 0 {
		rest = rest[:next]
	}
	stop := strings.Index(rest, "-END ")
	if stop < 0 {
		stop = strings.Index(rest, "- END ")
	}
	if stop >= 0 {
		e := k + stop
		for e < limit && s[e] == '-' {
			e++
		}
		for e < limit && (isWord(s[e]) || s[e] == ' ' || s[e] == '/') && e-k-stop < 80 {
			e++
		}
		e = runOf(s, e, dash)
		sc.hide(b, e, rulePEM)
		return
	}
	e := pemBody(s, k, limit)
	if e == k && !strings.Contains(label, "PRIVATE") {
		return
	}
	sc.hide(b, e, rulePEM)
}

// pemBody is the end of base64 lines that begin at i, whatever stands in front
// of each (a diff's sign, a line number, a comment's or a quotation's mark).
func pemBody(s string, i, limit int) int {
	end := i
	for n := 0; n < 2048; n++ {
		// The line's end, real or escaped.
		k := i
		for k < limit && (isBlank(s[k]) || s[k] == '"' || s[k] == '\'' || s[k] == ',' || s[k] == '+' && n >= 0 && isBlank(at(s, k+1)) || s[k] == '\\' && at(s, k+1) != 'n' && at(s, k+1) != 'r') {
			k++
		}
		switch {
		case k >= limit:
			return end
		case s[k] == '\n' || s[k] == '\r':
			k++
		case s[k] == '\\' && (at(s, k+1) == 'n' || at(s, k+1) == 'r'):
			k += 2
		case n == 0:
			// no break after the header: the body follows at once
		default:
			return end
		}
		m := k
		for m < limit && m-k < 24 && (isBlank(s[m]) || strings.IndexByte("+-|>#*\"':", s[m]) >= 0 && !(s[m] == '+' && is(at(s, m+1), base64std) && m > k) || isDigit(s[m]) && lineNumber(s, m) || s[m] >= 0x80) {
			m++
		}
		e := runOf(s, m, base64std|equals)
		if e == m { // an empty line, a header's
			if eol(s, skipBlank(s, m)) >= 0 && n < 12 {
				i = m
				continue
			}
			return end
		}
		// A header such as Proc-Type: 4,ENCRYPTED or Comment: x.
		if c := runOf(s, m, alnum|dash); at(s, c) == ':' && n < 8 {
			i = min(lineEndIn(s, m, 200), limit)
			if x := strings.Index(s[m:i], `\n`); x >= 0 {
				i = m + x
			}
			end = i
			continue
		}
		if e-m < 8 && !(e < len(s) && (isSpace(s[e]) || s[e] == '\\') && n > 0) && e != len(s) {
			return end
		}
		if w := s[m:e]; runOf(w, 0, lower) == len(w) || len(w) < 8 && !strings.ContainsAny(w, "=") && e < len(s) && eol(s, skipBlank(s, e)) >= 0 && n > 0 && eol(s, e) < 0 {
			return end
		}
		end, i = e, e
		if e < limit && !isSpace(s[e]) && s[e] != '\\' && s[e] != '"' && s[e] != '\'' && s[e] != ',' && s[e] != '.' {
			return end
		}
	}
	return end
}

// lineNumber: digits at i that number a line rather than begin its text.
func lineNumber(s string, i int) bool {
	e := runOf(s, i, digit)
	return e-i <= 6 && e < len(s) && (isBlank(s[e]) || s[e] == '|' || s[e] == ':' || s[e] >= 0x80)
}

// puttyAt: the private part of a PuTTY key.
func (sc *scan) puttyAt(start, end int) {
	s := sc.s
	k := lineEnd(s, end)
	e := pemBody(s, k, min(len(s), k+maxBlock))
	if m := strings.Index(s[e:min(len(s), e+64)], "Private-MAC:"); m >= 0 {
		if x := runOf(s, skipBlank(s, e+m+12), hexa); x > e {
			e = x
		}
	}
	if e > k {
		for k < e && isSpace(s[k]) {
			k++
		}
		sc.hide(k, e, rulePutty)
	}
}

// cryptAt: $2b$12$…, $6$salt$…, $argon2id$…: a password's hash can be guessed
// from, and is no digest that anything else is named by.
func (sc *scan) cryptAt(start, end int) {
	s := sc.s
	if start > 0 && (isWord(s[start-1]) || s[start-1] == '$') && !escapeBefore(s, start) {
		return
	}
	e := runOf(s, end, alnum|dot|plusSlash|equals|dash|under)
	for e < len(s) && (s[e] == '$' || s[e] == ',') && is(at(s, e+1), alnum|dot|plusSlash|equals) && e-start < 512 {
		e = runOf(s, e+1, alnum|dot|plusSlash|equals|dash|under)
	}
	if e-start < 24 || !randomish(s[max(end, e-40):e]) && !strings.ContainsAny(s[end:e], "./") {
		return
	}
	sc.hide(start, e, ruleCrypt)
}
