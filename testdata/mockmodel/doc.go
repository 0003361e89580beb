// Package mockmodel is a model server for tests: it speaks enough of the
// Anthropic Messages, OpenAI Chat Completions, OpenAI Responses and Gemini
// generateContent APIs (streamed and whole answers, token counting, errors) for
// a real agent to hold a whole session with it, on loopback, with no account
// and no network. What it calls tools and their parameters is taken from what
// the agent offers.
//
// What it says is scripted. A prompt that holds [[script:NAME]] picks the
// script; the script's n-th turn is the answer to the n-th request that
// follows that prompt. The server keeps no state between requests, and its ids
// are derived from what is asked, so two runs of one session get the same
// bytes. Nothing here is a model, and nothing here belongs in a product.
package mockmodel
