package home

// Unused returns why entities of a domain are never used; empty if they are.
func Unused(domain string) string {
	switch domain {
	case "ai_task", "conversation", "stt", "tts", "wake_word":
		return "a part of voice assistants, not of a device"
	case "zone":
		return "a place, not a device"
	}
	return ""
}
